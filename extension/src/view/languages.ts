/** Highlighting by tokens: a line at a time, so that the end of a long text has its colours as soon as its beginning. */

import { StreamLanguage, type StringStream, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { tagHighlighter, tags } from "@lezer/highlight";
import type { Language } from "./record";

/** What a token looks like, its kind, and, of what goes on over lines, what ends it. */
type Token = [pattern: RegExp, kind: string | null, end?: RegExp];

const SPACE: Token = [/\s+/, null];
const STRING: Token = [/[a-z]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/i, "string"];
const NUMBER: Token = [/-?\b(?:0x[\da-f]+|\d+(?:\.\d*)?(?:e[-+]?\d+)?)\w?\b/i, "number"];
const NAME: Token = [/[A-Za-z_]\w*/, "variableName"];
const COMMON = [SPACE, STRING, NUMBER];

const BYTECODE: Token[] = [
  ...COMMON,
  [/#.*/, "comment"],
  [/[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*\b/, "keyword"],
  [/>>|->|\bto\b/, "operator"],
  NAME,
];
const MACHINE: Token[] = [
  ...COMMON,
  [/(?:\/\/|;|#(?!\w+ ?=)).*/, "comment"],
  [/[.$\w]+:/, "labelName"],
  [/[.@!][A-Za-z_][\w.]*/, "meta"],
  [/[%$][\w.]+/, "variableName"],
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
  [/\b(?:True|False|None)\b/, "bool"],
  [/\b(?:bool|bytes|dict|float|int|len|list|range|set|str|super|tuple|type)\b(?=\()/, "typeName"],
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
  [/\b(?:true|false|nullptr)\b/, "bool"],
  [/\b(?:bool|char|double|float|int|long|short|signed|unsigned|void|u?int\d+_t|size_t)\b/, "typeName"],
  NAME,
];

function words(...lists: string[]): Token {
  return [new RegExp(`\\b(?:${lists.join(" ").replaceAll(" ", "|")})\\b`), "keyword"];
}

/** What the text before a place leaves open: the end that is waited for, and what all up to it is. */
interface Open {
  end: RegExp | null;
  kind: string | null;
}

function tokens(known: Token[]): Extension {
  const sticky = known.map(([pattern, kind, end]): Token => [new RegExp(pattern, `${pattern.flags}y`), kind, end]);
  return StreamLanguage.define<Open>({
    startState: () => ({ end: null, kind: null }),
    token: (stream, open) => (open.end ? rest(stream, open) : next(stream, open, sticky)),
    tokenTable: { definition: tags.definition(tags.variableName) },
  });
}

function next(stream: StringStream, open: Open, known: Token[]): string | null {
  for (const [pattern, kind, end] of known) {
    pattern.lastIndex = stream.pos;
    if (!pattern.test(stream.string)) continue;
    stream.pos = pattern.lastIndex;
    if (end) Object.assign(open, { end, kind });
    return kind;
  }
  stream.next();
  return null;
}

function rest(stream: StringStream, open: Open): string | null {
  const { kind } = open;
  const left = stream.string.slice(stream.pos);
  const found = left.match(open.end as RegExp);
  stream.pos += found ? (found.index as number) + found[0].length : left.length;
  if (found) open.end = null;
  return kind;
}

const CLASSES = syntaxHighlighting(
  tagHighlighter([
    { tag: tags.keyword, class: "t-keyword" },
    { tag: tags.string, class: "t-string" },
    { tag: [tags.number, tags.bool], class: "t-number" },
    { tag: tags.comment, class: "t-comment" },
    { tag: tags.definition(tags.variableName), class: "t-definition" },
    { tag: tags.typeName, class: "t-type" },
    { tag: [tags.meta, tags.labelName], class: "t-meta" },
  ]),
);

const LANGUAGES: { [name in Language]?: Token[] } = { python: PYTHON, triton: PYTHON, cpp: CPP, bytecode: BYTECODE };

export function language(name: Language): Extension {
  return name === "text" ? [] : [tokens(LANGUAGES[name] ?? MACHINE), CLASSES];
}
