/** Highlighting: Python and C++ by CodeMirror's parsers, listings (bytecode, assembly, IR) by tokens. */

import { cpp } from "@codemirror/lang-cpp";
import { python } from "@codemirror/lang-python";
import { StreamLanguage, type StringStream, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { tagHighlighter, tags } from "@lezer/highlight";
import type { Language } from "./record";

type Token = [pattern: RegExp, name: string | null];

const COMMON: Token[] = [
  [/\s+/, null],
  [/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/, "string"],
  [/-?\b(?:0x[\da-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?)\b/i, "number"],
];
const BYTECODE: Token[] = [
  ...COMMON,
  [/#.*/, "comment"],
  [/[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*\b/, "keyword"],
  [/>>|->|\bto\b/, "operator"],
  [/[A-Za-z_]\w*/, "variableName"],
];
const MACHINE: Token[] = [
  ...COMMON,
  [/(?:\/\/|;|#(?!\w+ ?=)).*/, "comment"],
  [/[.$\w]+:/, "labelName"],
  [/[.@!][A-Za-z_][\w.]*/, "meta"],
  [/[%$][\w.]+/, "variableName"],
  [/[A-Za-z_][\w.]*/, "keyword"],
];

function listing(tokens: Token[]): Extension {
  const sticky = tokens.map(([pattern, name]): Token => [new RegExp(pattern.source, `${pattern.flags}y`), name]);
  return StreamLanguage.define({
    token(stream: StringStream): string | null {
      for (const [pattern, name] of sticky) {
        pattern.lastIndex = stream.pos;
        if (pattern.test(stream.string)) {
          stream.pos = pattern.lastIndex;
          return name;
        }
      }
      stream.next();
      return null;
    },
  });
}

const CLASSES = syntaxHighlighting(
  tagHighlighter([
    { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.operatorKeyword], class: "t-keyword" },
    { tag: [tags.string, tags.special(tags.string)], class: "t-string" },
    { tag: [tags.number, tags.bool, tags.null], class: "t-number" },
    { tag: [tags.comment, tags.lineComment, tags.blockComment], class: "t-comment" },
    {
      tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.className)],
      class: "t-definition",
    },
    { tag: [tags.typeName, tags.standard(tags.variableName)], class: "t-type" },
    { tag: [tags.meta, tags.processingInstruction, tags.labelName], class: "t-meta" },
  ]),
);

export function language(name: Language): Extension {
  return [parser(name), CLASSES];
}

function parser(name: Language): Extension {
  switch (name) {
    case "python":
    case "triton":
      return python();
    case "cpp":
      return cpp();
    case "bytecode":
      return listing(BYTECODE);
    case "text":
      return [];
    default:
      return listing(MACHINE);
  }
}
