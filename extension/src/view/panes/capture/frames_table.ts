/** Every Python frame that ran in the compiled call, below its caller: compiled, inlined, skipped or plain Python. */

import { h } from "../../dom/elements";
import { plural } from "../../dom/format";
import type { SeenFrame } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";

const FATES: { [fate in SeenFrame["fate"]]: string } = {
  compiled: "compiled",
  inlined: "inlined",
  skipped: "skipped",
  plain: "plain Python",
};
const MAX_ROWS = 2000;
const MAX_DEPTH = 24;

export class FramesTable extends LinkedContent {
  constructor(state: State) {
    super(state);
    const { seen } = state.record;
    const depths: number[] = [];
    // callers come before what they call
    seen.forEach(({ caller }, i) => {
      depths[i] = caller === null || caller >= i ? 0 : depths[caller] + 1;
    });
    const children = seen.map((): number[] => []);
    seen.forEach(({ caller }, i) => {
      if (caller !== null && caller < i) children[caller].push(i);
    });
    const order: number[] = [];
    const work = seen.flatMap((_, i) => (depths[i] === 0 ? [i] : [])).reverse();
    for (let at = work.pop(); at !== undefined; at = work.pop()) {
      order.push(at);
      work.push(...children[at].toReversed());
    }
    const rows = order.slice(0, MAX_ROWS).map((i) => this.row(seen[i], depths[i]));
    this.element.append(h("p", { class: "lead" }, this.lead()), this.sentences(["Function", "Calls", "Outcome"], rows));
    if (order.length > MAX_ROWS) {
      this.element.append(
        h("p", { class: "note" }, `Showing the first ${MAX_ROWS} of ${plural(order.length, "function")}.`),
      );
    }
  }

  private lead(): string {
    const counts = new Map<string, number>();
    for (const { fate, calls } of this.state.record.seen) counts.set(fate, (counts.get(fate) ?? 0) + calls);
    const texts = Object.entries(FATES).flatMap(([fate, text]) =>
      counts.has(fate) ? [`${counts.get(fate)} ${text}`] : [],
    );
    return `Calls of Python functions in the compiled call: ${texts.join(", ")}.`;
  }

  private row(frame: SeenFrame, depth: number): HTMLTableRowElement {
    const { record } = this.state;
    const place = h("small", { title: frame.filename }, ` ${this.state.label(frame.filename)}:${frame.line}`);
    const indent = `padding-left:${0.8 * Math.min(depth, MAX_DEPTH)}em`;
    const name = h("div", { style: indent }, code(frame.name), place);
    const fate = h("div", { class: `fate ${frame.fate}` }, FATES[frame.fate], this.compileButton(frame));
    if (frame.reason) fate.append(h("small", {}, ` ${frame.reason}`));
    const calls = shortCell(frame.calls.toLocaleString("en"));
    const row = h("tr", {}, ...cells(name, calls, fate));
    const source = record.sources.find((each) => each.name === frame.filename);
    return this.linkTo(row, [source ? `${source.id}#${frame.line}` : null]);
  }

  /** The button that shows the compile whose code ran, or into which the function was inlined. */
  private compileButton({ fate, compile }: SeenFrame): HTMLElement | null {
    const found = compile === null ? null : this.state.findCompile(compile);
    if (!found) return null;
    const open = (event: Event) => {
      event.stopPropagation();
      this.state.select(found);
    };
    const text = h("button", { class: "link", onclick: open }, found.id);
    return h("span", {}, { inlined: " into ", plain: ", tried as " }[fate as string] ?? " as ", text);
  }
}
