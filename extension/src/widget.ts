/** The explorer as an anywidget module, and as a function for pages without a kernel. */

import { mount } from "./view/app/explorer";
import { StaticModel, type WidgetModel } from "./view/model/widget_model";

/**
 * Shows a record, as `unpackRecord` reads it, in `element` without a kernel. `file`: the notebook that has the record.
 * Returns a function that removes it.
 */
export function open(element: HTMLElement, record: unknown, file = ""): () => void {
  return mount(element, new StaticModel(record, file));
}

export default {
  render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
    return mount(el, model);
  },
};
