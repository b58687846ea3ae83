/** Syntax highlighting by regular expressions, line by line, for texts that are never edited. */

import { type Extension, RangeSetBuilder, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import type { Language } from "../../model/record/record";

/** A token's pattern, the name of its colour, and for tokens that may span several lines, the pattern of the end. */
type Token = [pattern: RegExp, colour: string | null, end?: RegExp];

const SPACE: Token = [/\s+/, null];
const STRING: Token = [/[a-z]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/i, "string"];
const NUMBER: Token = [/-?\b(?:0x[\da-f]+|\d+(?:\.\d*)?(?:e[-+]?\d+)?)\w?\b/i, "number"];
const NAME: Token = [/[A-Za-z_]\w*/, null];
const COMMON = [SPACE, STRING, NUMBER];

const BYTECODE: Token[] = [...COMMON, [/#.*/, "comment"], [/[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*\b/, "keyword"], NAME];
const MACHINE: Token[] = [
  ...COMMON,
  [/(?:\/\/|;|#(?!\w+ ?=)).*/, "comment"],
  [/[.$\w]+:/, "meta"],
  [/[.@!][A-Za-z_][\w.]*/, "meta"],
  [/[%$][\w.]+/, null],
  [/[A-Za-z_][\w.]*/, "keyword"],
];
const PYTHON: Token[] = [
  [/[a-z]{0,2}"""/i, "string", /"""/],
  [/[a-z]{0,2}'''/i, "string", /'''/],
  ...COMMON,
  [/#.*/, "comment"],
  [/(?<=^\s*)@[\w.]+/, "meta"],
  [/(?<=\b(?:def|class) +)\w+/, "definition"],
  words(
    "and as assert async await break case class continue def del elif else except finally for from global if import in",
    "is lambda match nonlocal not or pass raise return try while with yield",
  ),
  [/\b(?:True|False|None)\b/, "number"],
  [/\b(?:bool|bytes|dict|float|int|len|list|range|set|str|super|tuple|type)\b(?=\()/, "type"],
  NAME,
];
const CPP: Token[] = [
  [/\/\*/, "comment", /\*\//],
  [/^\s*#.*/, "meta"],
  ...COMMON,
  [/\/\/.*/, "comment"],
  words(
    "alignas auto break case catch class const constexpr continue default delete do else enum extern for goto if inline",
    "namespace new operator private public restrict return sizeof static static_cast struct switch template this throw",
    "try typedef typename union using virtual volatile while reinterpret_cast __restrict__",
  ),
  [/\b(?:true|false|nullptr)\b/, "number"],
  [/\b(?:bool|char|double|float|int|long|short|signed|unsigned|void|u?int\d+_t|size_t)\b/, "type"],
  NAME,
];

const TOKENS: { [name in Language]?: Token[] } = { python: PYTHON, triton: PYTHON, cpp: CPP, bytecode: BYTECODE };

function words(...lists: string[]): Token {
  return [new RegExp(`\\b(?:${lists.join(" ").replaceAll(" ", "|")})\\b`), "keyword"];
}

/** Returns the CodeMirror extension that colours a language, for an editor whose text does not change. */
export function syntaxHighlighting(name: Language): Extension {
  if (name === "text") return [];
  return ViewPlugin.define((view) => new HighlightPlugin(view, tokenizerOf(name)), {
    decorations: ({ decorations }) => decorations,
  });
}

export function tokenizerOf(name: Language): Tokenizer {
  return new Tokenizer(TOKENS[name] ?? MACHINE);
}

class HighlightPlugin {
  decorations: DecorationSet;

  constructor(
    view: EditorView,
    private readonly reader: Tokenizer,
  ) {
    this.decorations = this.draw(view);
  }

  update({ viewportChanged, view }: ViewUpdate): void {
    if (viewportChanged) this.decorations = this.draw(view);
  }

  /** Returns the decorations of the visible lines. */
  private draw({ state: { doc }, viewport }: EditorView): DecorationSet {
    const builder = new RangeSetBuilder<Decoration>();
    const last = doc.lineAt(viewport.to).number;
    for (let number = doc.lineAt(viewport.from).number; number <= last; number++) {
      const { from } = doc.line(number);
      for (const [start, end, colour] of this.reader.tokensOf(doc, number))
        builder.add(from + start, from + end, MARKS[colour]);
    }
    return builder.finish();
  }
}

const MARKS = Object.fromEntries(
  ["keyword", "string", "number", "comment", "definition", "type", "meta"].map((colour) => [
    colour,
    Decoration.mark({ class: `t-${colour}` }),
  ]),
);

/** Lines that are longer, such as embedded data, are not coloured. */
const MAX_LINE = 5000;

/** Finds the tokens of lines. */
class Tokenizer {
  private readonly tokens: Token[];
  /** Matches the start of tokens that may span several lines; few lines contain one. */
  private readonly opening: RegExp;
  /** For each line scanned so far, from 1: the token that is still open at its start. */
  private readonly open: (Token | null)[] = [null, null];

  constructor(tokens: Token[]) {
    this.tokens = tokens.map(([pattern, colour, end]) => [new RegExp(pattern, `${pattern.flags}y`), colour, end]);
    const opening = tokens.flatMap(([pattern, , end]) => (end ? [pattern.source] : []));
    this.opening = new RegExp(opening.join("|") || "(?!)", "i");
  }

  /** Returns the coloured ranges of a line. Lines are counted from 1. */
  tokensOf(doc: Text, number: number): [from: number, to: number, colour: string][] {
    const found: [number, number, string][] = [];
    this.scanLine(doc.line(number).text, this.openAt(doc, number), (from, to, colour) =>
      found.push([from, to, colour]),
    );
    return found;
  }

  /** Returns the token that is open at the start of a line. */
  private openAt(doc: Text, number: number): Token | null {
    const { open } = this;
    for (let at = open.length - 1; at < number; at++) {
      const { text } = doc.line(at);
      open.push(open[at] || this.opening.test(text) ? this.scanLine(text, open[at]) : null);
    }
    return open[number];
  }

  /** Visits the tokens of a line, and returns the token that is open at its end. */
  private scanLine(
    line: string,
    open: Token | null,
    onToken: (from: number, to: number, colour: string) => void = () => {},
  ): Token | null {
    if (line.length > MAX_LINE) return open;
    let inside = open;
    for (let at = 0; at < line.length; ) {
      const from = at;
      const token = inside ?? this.tokens.find(([pattern]) => matchesAt(pattern, line, from));
      if (inside?.[2]) [at, inside] = closeToken(inside, inside[2], line, at);
      else {
        at = token ? token[0].lastIndex : at + 1;
        if (token?.[2]) inside = token;
      }
      if (token?.[1]) onToken(from, at, token[1]);
    }
    return inside;
  }
}

function matchesAt(pattern: RegExp, line: string, at: number): boolean {
  pattern.lastIndex = at;
  return pattern.test(line);
}

/** Returns where an open token ends on a line, and the token if it continues on the next one. */
function closeToken(token: Token, end: RegExp, line: string, from: number): [at: number, inside: Token | null] {
  const found = end.exec(line.slice(from));
  return found ? [from + found.index + found[0].length, null] : [line.length, token];
}
