/** The explorer as an anywidget module, and for pages that have no kernel. */

import { mount } from "./view/app/explorer";
import { type Model, StaticModel } from "./view/model/host";

/** Show a record (its JSON text, or what was read from one) in `element`, without a kernel. */
export function open(element: HTMLElement, record: unknown): () => void {
  return mount(element, new StaticModel(record));
}

export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    return mount(el, model);
  },
};
