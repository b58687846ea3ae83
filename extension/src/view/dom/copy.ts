/** Copies texts to the clipboard. */

import { h } from "./elements";

const SHOWN_MS = 1500;

/** Copies a text; rejects if the browser does not let the page copy. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // a page that is served without encryption has no clipboard
  const field = h("textarea", { style: "position:fixed;opacity:0" });
  field.value = text;
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!isCopied) throw new Error("the browser does not let this page copy");
}

/** Creates a button that copies a text, and says for a moment whether it did. */
export function copyButton(name: string, title: string, textOf: () => string, className = ""): HTMLButtonElement {
  const button = h("button", { title, class: className }, name);
  const say = (text: string) => {
    button.textContent = text;
    setTimeout(() => (button.textContent = name), SHOWN_MS);
  };
  button.onclick = (event) => {
    event.stopPropagation();
    copyText(textOf()).then(
      () => say("Copied"),
      () => say("Not copied"),
    );
  };
  return button;
}
