/** Colours for code: the tokens of a line, told by patterns.  Texts here are never edited, so that a line's do not change. */

import { type Extension, RangeSetBuilder, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import type { Language } from "./record";

/** What a token looks like, its colour's name, and, of what goes on over lines, what ends it. */
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
  [/@[\w.]+/, "meta"],
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

/** The colours of a language, for an editor whose text stays as it is. */
export function language(name: Language): Extension {
  if (name === "text") return [];
  return ViewPlugin.define((view) => new Coloured(view, readerOf(name)), {
    decorations: ({ decorations }) => decorations,
  });
}

export function readerOf(name: Language): Reader {
  return new Reader(TOKENS[name] ?? MACHINE);
}

class Coloured {
  decorations: DecorationSet;

  constructor(
    view: EditorView,
    private readonly reader: Reader,
  ) {
    this.decorations = this.draw(view);
  }

  update({ viewportChanged, view }: ViewUpdate): void {
    if (viewportChanged) this.decorations = this.draw(view);
  }

  /** The lines in sight have their colours. */
  private draw({ state: { doc }, viewport }: EditorView): DecorationSet {
    const made = new RangeSetBuilder<Decoration>();
    const last = doc.lineAt(viewport.to).number;
    for (let number = doc.lineAt(viewport.from).number; number <= last; number++) {
      const { from } = doc.line(number);
      for (const [start, end, colour] of this.reader.line(doc, number))
        made.add(from + start, from + end, MARKS[colour]);
    }
    return made.finish();
  }
}

const MARKS = Object.fromEntries(
  ["keyword", "string", "number", "comment", "definition", "type", "meta"].map((colour) => [
    colour,
    Decoration.mark({ class: `t-${colour}` }),
  ]),
);

/** A longer line, as of data, stays plain. */
const LONGEST = 5000;

/** Finds the tokens of a text's lines. */
class Reader {
  private readonly tokens: Token[];
  /** What begins something that goes on over lines: few lines have any of it. */
  private readonly opening: RegExp;
  /** What each line begins inside of, as far as that is known. */
  private readonly open: (Token | null)[] = [null, null];

  constructor(tokens: Token[]) {
    this.tokens = tokens.map(([pattern, colour, end]) => [new RegExp(pattern, `${pattern.flags}y`), colour, end]);
    const opening = tokens.flatMap(([pattern, , end]) => (end ? [pattern.source] : []));
    this.opening = new RegExp(opening.join("|") || "(?!)", "i");
  }

  /** The coloured stretches of a line, from 1. */
  line(doc: Text, number: number): [from: number, to: number, colour: string][] {
    const found: [number, number, string][] = [];
    this.walk(doc.line(number).text, this.before(doc, number), (from, to, colour) => found.push([from, to, colour]));
    return found;
  }

  /** What a line begins inside of. */
  private before(doc: Text, number: number): Token | null {
    const { open } = this;
    for (let at = open.length - 1; at < number; at++) {
      const { text } = doc.line(at);
      open.push(open[at] || this.opening.test(text) ? this.walk(text, open[at]) : null);
    }
    return open[number];
  }

  /** Go through a line's tokens; what it leaves open comes back. */
  private walk(
    line: string,
    open: Token | null,
    onToken: (from: number, to: number, colour: string) => void = () => {},
  ): Token | null {
    if (line.length > LONGEST) return open;
    let inside = open;
    for (let at = 0; at < line.length; ) {
      const from = at;
      const token = inside ?? this.tokens.find(([pattern]) => isAt(pattern, line, from));
      if (inside?.[2]) [at, inside] = endOf(inside, inside[2], line, at);
      else {
        at = token ? token[0].lastIndex : at + 1;
        if (token?.[2]) inside = token;
      }
      if (token?.[1]) onToken(from, at, token[1]);
    }
    return inside;
  }
}

function isAt(pattern: RegExp, line: string, at: number): boolean {
  pattern.lastIndex = at;
  return pattern.test(line);
}

/** Where what is open ends on a line, and whether it goes on. */
function endOf(token: Token, end: RegExp, line: string, from: number): [at: number, inside: Token | null] {
  const found = end.exec(line.slice(from));
  return found ? [from + found.index + found[0].length, null] : [line.length, token];
}
