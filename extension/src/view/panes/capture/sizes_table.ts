/** The sizes and numbers of a compile: which are symbolic, which are static, and the line that made them so. */

import { h } from "../../dom/elements";
import { plural, readable } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import type { Compile, Guard, ItemId, Symbol as Sym } from "../../model/record/record";
import type { State } from "../../model/state";
import { cells, code, LinkedContent, shortCell } from "../linked_content";

/** A dimension of a tensor, or a number, that a guard fixes to one value. */
interface FixedSize {
  source: string;
  value: string;
  guard: Guard;
}

const MAX_CONDITIONS = 6;

export class SizesTable extends LinkedContent {
  private readonly guardsArtifact: string | undefined;

  constructor(
    state: State,
    private readonly compile: Compile,
  ) {
    super(state);
    this.element.classList.add("sizes");
    this.guardsArtifact = compile.artifacts.find((a) => a.pane === "guards")?.id;
    const free = compile.symbols.filter((symbol) => symbol.became === null);
    const became = compile.symbols.filter((symbol) => symbol.became !== null);
    const named = new Set(compile.symbols.map((symbol) => symbol.source));
    const fixed = compile.guards.flatMap(fixedSizes).filter(({ source }) => !named.has(source));
    this.element.append(h("p", { class: "lead" }, lead(free.length, became.length, fixed.length)));
    if (became.length)
      this.add(
        "Made static",
        ["Size", "Became", "Because of", "Line"],
        became.map((s) => this.became(s)),
      );
    if (free.length)
      this.add(
        "Symbolic",
        ["Size", "Values", "Why", "First used"],
        free.map((s) => this.symbol(s)),
      );
    if (fixed.length)
      this.add(
        "Never symbolic",
        ["Size", "Value", "First used"],
        fixed.map((f) => this.fixed(f)),
      );
    this.highlight();
  }

  private add(title: string, heads: string[], rows: HTMLTableRowElement[]): void {
    this.element.append(h("h3", {}, title), this.sentences(heads, rows));
  }

  private became({ name, source, became, condition, condition_line, line }: Sym): HTMLTableRowElement {
    const at = condition_line ?? line;
    const row = h(
      "tr",
      {},
      ...cells(
        code(name || readable(source)),
        shortCell(code(readable(became ?? ""))),
        code(readable(condition ?? "")),
        this.lineText(at),
      ),
    );
    return this.linkTo(row, [at]);
  }

  private symbol({ name, source, low, high, equals, why, line, condition, condition_line }: Sym): HTMLTableRowElement {
    const range = equals === null ? `${low ?? "−∞"} … ${high ?? "∞"}` : `equal to ${readable(equals)}`;
    const conditions = this.conditionsOn(source, condition).map((each) => code(readable(each)));
    const listed = conditions.flatMap((each, i) => (i ? [", ", each] : [each]));
    const narrowed = conditions.length > 0 && h("small", {}, " narrowed by ", ...listed);
    const shown = code(name || readable(source));
    const row = h("tr", {}, ...cells(shown, h("span", {}, range, narrowed), why, this.lineText(line)));
    return this.linkTo(row, [condition_line ?? line]);
  }

  /** The conditions on a size, but that it is not 0 or 1; or the one that is known. */
  private conditionsOn(source: string, known: string | null): string[] {
    const all = this.compile.guards.filter(({ kind, code }) => kind === "CONDITION" && code.includes(source));
    const isUsual = (code: string) =>
      code.startsWith(`${source} >= `) || [`${source} != 0`, `${source} != 1`].includes(code);
    const found = all.map(({ code }) => code).filter((code) => !isUsual(code));
    return (found.length ? found : known ? [known] : []).slice(0, MAX_CONDITIONS);
  }

  private fixed({ source, value, guard }: FixedSize): HTMLTableRowElement {
    const row = h("tr", {}, ...cells(code(readable(source)), shortCell(code(value)), this.lineText(guard.line)));
    return this.linkTo(row, [this.guardsArtifact ? `${this.guardsArtifact}#${guard.key}` : null, guard.line]);
  }

  private lineText(line: ItemId | null): Node {
    return line === null
      ? h("span", {})
      : h("span", {}, h("small", {}, `${keyOf(line)} `), code(this.state.links.text(line)));
  }
}

/** Returns the dimensions or the number that a guard fixes to one value. */
function fixedSizes(guard: Guard): FixedSize[] {
  const sizes = (guard.sizes ?? []).flatMap((size, i): FixedSize[] =>
    size === null ? [] : [{ source: `${guard.source}.size()[${i}]`, value: String(size), guard }],
  );
  const number = guard.code.startsWith(`${guard.source} == `) ? guard.code.slice(guard.source.length + 4) : "";
  return /^-?\d+$/.test(number) ? [...sizes, { source: guard.source, value: number, guard }] : sizes;
}

function lead(free: number, became: number, fixed: number): string {
  if (!free && !became) {
    const counted = plural(fixed, "size or number is", "sizes and numbers are");
    return `${counted} fixed: another value needs another compile. With %%compile --dynamic they are symbolic from the first compile on.`;
  }
  return `${plural(free, "size")} may change from call to call; ${became} became static, ${fixed} ${fixed === 1 ? "was" : "were"} never symbolic.`;
}
