/**
 * The line with the worst problem, and the next ones: what it is, at which line, and why, readable without a click. A
 * press shows it in the overview, beside its line. Without a problem there is no line.
 */

import { h, prose } from "../dom/elements";
import type { Problem } from "../model/record/record";
import type { State } from "../model/state";

const NEXT_SENTENCE = /(?<=\.) +(?=[A-Z])/;

export class ProblemLine {
  readonly element = h("nav", { class: "problem", "aria-label": "Problems" });
  private readonly problems: Problem[];
  private readonly which = h("span", { class: "which", role: "status" });
  private readonly text = h("button", { class: "what" });
  private at = 0;

  constructor(private readonly state: State) {
    this.problems = state.record.problems.filter(({ grade }) => grade !== "expected");
    this.element.hidden = !this.problems.length;
    this.text.onclick = () => this.show();
    const button = (sign: string, title: string, by: number) =>
      h("button", { class: "icon", title, "aria-label": title, onclick: () => this.move(by) }, sign);
    const others = [button("‹", "Previous problem", -1), this.which, button("›", "Next problem", 1)];
    this.element.append(this.text, ...(this.problems.length > 1 ? others : []));
    this.draw();
  }

  private move(by: number): void {
    this.at = (this.at + by + this.problems.length) % this.problems.length;
    this.draw();
    this.show();
  }

  private show(): void {
    this.state.goToProblem(this.problems[this.at]);
  }

  private draw(): void {
    const problem = this.problems[this.at];
    if (!problem) return;
    const { grade, title, cause } = problem;
    this.which.textContent = `${this.at + 1} of ${this.problems.length}`;
    this.text.className = `what ${grade}`;
    this.text.title = `${title}\n${cause}`;
    const [kind, rest] = title.split(/: (.*)/s);
    const heading = rest && cause.startsWith(rest) ? `${kind}:` : title; // the cause says the rest
    const oneLine = cause.replace(/([.:]?)\s*\n\s*/g, (_, end: string) => `${end || "."} `);
    const [text] = oneLine.split(NEXT_SENTENCE); // the overview has the others
    this.text.replaceChildren(h("b", {}, ...prose(placed(problem, heading, this.state))), " ", ...prose(text));
  }
}

/** A heading with the line of its problem. */
function placed({ filename, lineno }: Problem, heading: string, state: State): string {
  const { sources } = state.record;
  const place = sources.length > 1 ? `${state.label(filename)}:${lineno}` : `line ${lineno}`;
  const text = lineno ? `${place}: ${heading}` : heading;
  return text.charAt(0).toUpperCase() + text.slice(1);
}
