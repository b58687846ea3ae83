/** A button that makes an experiment with the cell, where a pane lacks what the experiment records. */

import { h } from "../dom/elements";
import type { State } from "../model/state";
import { experimentsOf } from "../model/widget_model";

/** Creates the button; null if the experiment cannot be made, as on a page without a kernel. */
export function tryButton({ model }: State, name: string, text: string): HTMLButtonElement | null {
  const choice = experimentsOf(model)?.choices.find((each) => each.name === name && !each.why);
  if (!choice) return null;
  const button = h("button", { class: "try", title: `Run the cell again: ${choice.label}` }, text);
  button.onclick = () => {
    model.send({ type: "try", experiment: name, item: "" });
    button.disabled = true;
  };
  return button;
}
