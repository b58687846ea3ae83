/**
 * The query language of the search field: words, and `op:`, `shape:`, `dtype:`, `module:`, `line:` for one property.
 */

import { tensorType } from "../../dom/format";
import { keyOf } from "../../model/analysis/links";
import type { ItemId, Node } from "../../model/record/record";

const FIELDS = ["op", "shape", "dtype", "module", "line"] as const;
type Field = (typeof FIELDS)[number];

/** Whether a node matches a query, that is, all of its terms. `line` returns the user's line of the node. */
type Matcher = (node: Node, line: () => ItemId | null) => boolean;

/** Parses a query; returns null if it is empty. */
export function parseQuery(text: string): Matcher | null {
  const terms = [...text.toLowerCase().matchAll(/(?:(\w+):)?("[^"]*"|\[[^\]]*\]?|\S+)/g)].map(([, field, value]) =>
    termMatcher(field, value.replaceAll('"', "")),
  );
  return terms.length ? (node, line) => terms.every((matches) => matches(node, line)) : null;
}

function termMatcher(field: string | undefined, value: string): Matcher {
  const known = FIELDS.find((f) => f === field);
  // a word that contains a colon, such as "torch::relu"
  if (!known) return (node) => `${node.key} ${node.target}`.toLowerCase().includes(field ? `${field}:${value}` : value);
  return (node, line) => matchesField(known, value, node, line);
}

function matchesField(field: Field, value: string, node: Node, line: () => ItemId | null): boolean {
  if (field === "op") return node.target.toLowerCase().includes(value);
  if (field === "module") return node.module?.toLowerCase().includes(value) ?? false;
  if (field === "dtype") return [node.dtype, tensorType(node.dtype, null)].includes(value);
  if (field === "shape") return matchesShape(node.shape, value);
  const at = line();
  return at !== null && keyOf(at) === value;
}

/** Whether a shape matches `[8, 10]`, `8x10`, `8,*` (a star is any size), or contains a single size. */
function matchesShape(shape: (number | string)[] | null, value: string): boolean {
  if (!shape) return false;
  const sizes = value
    .replace(/[[\]]/g, "")
    .split(/[x,\s]+/)
    .filter(Boolean);
  if (sizes.length === 1 && !value.startsWith("[")) return shape.some((s) => String(s) === sizes[0]);
  return sizes.length === shape.length && sizes.every((s, i) => s === "*" || s === String(shape[i]).toLowerCase());
}
