/**
 * Fusion: which operations became one kernel, the memory traffic that this avoids, and which were not fused and why.
 */

import { h } from "../../dom/elements";
import { bytes, plural } from "../../dom/format";
import { appendTo, keyOf } from "../../model/analysis/links";
import type { Compile, Fusion, FusionRefusal, ItemId, Kernel } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";
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
    if (rows.length) this.element.append(this.table(["Kernel", "Traffic avoided", "Kind", "Nodes"], rows));
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
    return `${plural(operations, "operation")} are fused into ${plural(fusions.length, "group")}${all}${traffic}.`;
  }

  /** The fused kernels, those that avoid most traffic first. */
  private groups(): HTMLTableRowElement[] {
    const most = Math.max(1, ...this.compile.fusions.map((fusion) => fusion.bytes_saved ?? 0));
    const sorted = [...this.compile.fusions].sort((a, b) => (b.bytes_saved ?? 0) - (a.bytes_saved ?? 0));
    return sorted.map((fusion) => this.group(fusion, most));
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
    const saved = fusion.bytes_saved;
    const bar = h("span", { class: "bar saved", style: `width:${(100 * (saved ?? 0)) / most}%` });
    const traffic = h(
      "span",
      { class: "traffic" },
      h("span", { class: "track" }, bar),
      saved === null ? "" : bytes(saved),
    );
    const nodes = code(fusion.nodes.map(keyOf).join(", "));
    const row = h("tr", {});
    const name = kernel ? this.nameCell(kernel.name, row) : shortCell(code(fusion.kernel ?? fusion.key));
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
          refusals.map((refusal) => this.refusal(refusal)),
        ),
      ),
    );
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

const MAX_OPEN = 12;
