/**
 * Fusion: which operations became one kernel, the memory traffic that this avoids, and which were not fused and why.
 */

import { h } from "../../dom/elements";
import { bytes, plural } from "../../dom/format";
import { appendTo, keyOf } from "../../model/analysis/links";
import { groupRepeats, modulesOf, patternOf } from "../../model/analysis/repeats";
import type { Compile, Fusion, FusionRefusal, ItemId, Kernel } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";
import type { TableRow } from "../table_rows";
import { FusionHandles } from "./fusion_handles";

export class FusionTable extends LinkedContent {
  private readonly kernels: Map<string, Kernel>;
  private readonly nodes = new Map<string, ItemId[]>();
  private readonly handles: FusionHandles | null;

  constructor(
    state: State,
    private readonly compile: Compile,
  ) {
    super(state);
    this.kernels = new Map(compile.kernels.flatMap((k) => [[k.key, k] as const, [k.name, k] as const]));
    for (const { key, kernel, nodes } of compile.fusions) {
      this.nodes.set(key, nodes);
      if (kernel !== null) this.nodes.set(kernel, nodes);
    }
    this.handles = FusionHandles.of(state);
    this.element.append(h("p", { class: "lead" }, this.lead()));
    const rows = [...this.groups(), ...this.single()];
    if (rows.length) this.element.append(this.sentences(["Kernel", "Traffic avoided", "Kind", "Nodes"], rows));
    if (rows.length && this.handles) this.element.append(this.handles.element);
    if (compile.refusals.length) this.element.append(h("h3", {}, "Not fused"), ...this.refusals());
    this.highlight();
  }

  private lead(): string {
    const { fusions } = this.compile;
    const operations = fusions.reduce((sum, fusion) => sum + fusion.nodes.length, 0);
    const avoided = fusions.reduce((sum, fusion) => sum + (fusion.bytes_saved ?? 0), 0);
    const traffic = avoided ? `; fusing them avoids ${bytes(avoided)} of memory traffic per run` : "";
    const kernels = this.compile.kernels.filter(({ language }) => language !== "extern").length;
    const all = kernels ? `, of ${plural(kernels, "kernel")} in all` : "";
    if (!fusions.length) return `No operations are fused${kernels ? `: ${plural(kernels, "kernel")}` : ""}.`;
    return `${plural(operations, "operation")} are fused into ${plural(fusions.length, "group")}${all}${traffic}.`;
  }

  /** The fused kernels, those that avoid most traffic first; those of repeated modules are one row. */
  private groups(): TableRow[] {
    const equal = groupRepeats(this.compile.fusions, ({ nodes }) => patternOf(nodes, this.state.links));
    const most = Math.max(1, ...equal.map(savedBy));
    return equal
      .sort((a, b) => savedBy(b) - savedBy(a))
      .map((fusions) => {
        const rows = fusions.map((fusion) => this.group(fusion, most));
        return rows.length === 1 ? rows[0] : { head: this.sum(fusions, most), rows };
      });
  }

  private sum(fusions: Fusion[], most: number): HTMLTableRowElement {
    const [{ kernel, key, kind, nodes }] = fusions;
    const first = this.kernels.get(kernel ?? "")?.name;
    const row = h("tr", {});
    const handle = first === undefined ? null : this.handles?.handle(first, row);
    const name = h("span", {}, handle, code(first ?? key), h("small", {}, ` × ${fusions.length}`));
    const traffic = shortCell(trafficBar(savedBy(fusions), most));
    row.append(...cells(shortCell(name), traffic, kind, code(modulesOf(nodes, this.state.links))));
    return this.linkTo(row, fusions.flatMap((fusion) => fusion.nodes).slice(0, MAX_LINKED));
  }

  /** The kernels that nothing was fused into, which may be joined with others. */
  private single(): HTMLTableRowElement[] {
    const fused = new Set(this.compile.fusions.map(({ kernel }) => this.kernels.get(kernel ?? "")));
    const others = this.compile.kernels.filter((kernel) => kernel.language !== "extern" && !fused.has(kernel));
    return this.handles ? others.map((kernel) => this.singleRow(kernel)) : [];
  }

  private singleRow({ name, graph, item }: Kernel): HTMLTableRowElement {
    const made = `${this.compile.id}:${graph}.loops#${name}`;
    const nodes = this.compile.edges.filter((edge) => edge.made === made).flatMap(({ sources }) => sources);
    const own = nodes.filter((node) => node.startsWith(`${this.compile.id}:${graph}#`));
    const row = h("tr", {});
    row.append(...cells(this.nameCell(name, row), "", "not fused", code(own.map(keyOf).join(", "))));
    return this.linkTo(row, [...own, item]);
  }

  private nameCell(name: string, row: HTMLElement): HTMLTableCellElement {
    const handle = this.handles?.handle(name, row);
    return shortCell(h("span", {}, handle, code(name)));
  }

  private group(fusion: Fusion, most: number): HTMLTableRowElement {
    const kernel = fusion.kernel === null ? undefined : this.kernels.get(fusion.kernel);
    const nodes = code(fusion.nodes.map(keyOf).join(", "));
    const row = h("tr", {});
    const name = kernel ? this.nameCell(kernel.name, row) : shortCell(code(fusion.kernel ?? fusion.key));
    const traffic = fusion.bytes_saved === null ? "" : trafficBar(fusion.bytes_saved, most);
    row.append(...cells(name, shortCell(traffic), fusion.kind, nodes));
    return this.linkTo(row, [...fusion.nodes, kernel?.item ?? null]);
  }

  /** The pairs that were not fused, grouped by the kind of reason, the most frequent first. */
  private refusals(): HTMLElement[] {
    const kinds = new Map<string, FusionRefusal[]>();
    for (const refusal of this.compile.refusals) appendTo(kinds, refusal.kind, refusal);
    const sorted = [...kinds].sort(([, a], [, b]) => b.length - a.length);
    return sorted.map(([kind, refusals]) =>
      h(
        "details",
        { class: "refusals", open: sorted.length < 3 || refusals.length <= MAX_OPEN },
        h("summary", {}, h("b", {}, kind), ` ${refusals.length.toLocaleString("en")}`),
        this.table(
          ["First", "Second", "Why"],
          groupRepeats(refusals, (refusal) => this.patternOf(refusal)).map((equal) => this.refusalsOf(equal)),
        ),
      ),
    );
  }

  /** What was not fused, if both are in repeated modules. */
  private patternOf({ first, second, reason }: FusionRefusal): string {
    const [a, b] = [first, second].map((name) => patternOf(this.nodes.get(name) ?? [], this.state.links));
    return a && b && [a, b, reason].join("\n\n");
  }

  /** One pair, or equal pairs of repeated modules as one row. */
  private refusalsOf(refusals: FusionRefusal[]): TableRow {
    const rows = refusals.map((refusal) => this.refusal(refusal));
    if (rows.length === 1) return rows[0];
    const [{ first, second, reason }] = refusals;
    const name = h("span", {}, code(first), h("small", {}, ` × ${rows.length}`));
    const head = h("tr", {}, ...cells(shortCell(name), shortCell(code(second)), reason));
    const items = refusals.flatMap((each) => [each.first, each.second]).flatMap((each) => this.itemsOf(each));
    return { head: this.linkTo(head, items.slice(0, MAX_LINKED)), rows };
  }

  private refusal({ first, second, reason }: FusionRefusal): HTMLTableRowElement {
    const row = h("tr", {}, ...cells(shortCell(code(first)), shortCell(code(second)), reason));
    return this.linkTo(
      row,
      [first, second].flatMap((name) => this.itemsOf(name)),
    );
  }

  /** Returns the nodes and the kernel of a fusion group. */
  private itemsOf(name: string): ItemId[] {
    const item = this.kernels.get(name)?.item;
    return [...(this.nodes.get(name) ?? []), ...(item ? [item] : [])];
  }
}

/** The bytes of memory traffic that fusing avoids. */
function savedBy(fusions: Fusion[]): number {
  return fusions.reduce((sum, { bytes_saved }) => sum + (bytes_saved ?? 0), 0);
}

function trafficBar(saved: number, most: number): HTMLElement {
  const bar = h("span", { class: "bar saved", style: `width:${(100 * saved) / most}%` });
  return h("span", { class: "traffic" }, h("span", { class: "track" }, bar), bytes(saved));
}

const MAX_OPEN = 12;
const MAX_LINKED = 500;
