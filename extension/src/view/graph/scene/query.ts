/** The search box's language: words, and `op:`, `shape:`, `dtype:`, `module:`, `line:` for one property. */

import { tensorType } from "../../dom/dom";
import { keyOf } from "../../model/links";
import type { ItemId, Node } from "../../model/record";

const FIELDS = ["op", "shape", "dtype", "module", "line"] as const;
type Field = (typeof FIELDS)[number];

/** What a query says of a node: everything it asks for must be there. */
type Matcher = (node: Node, line: () => ItemId | null) => boolean;

/** Null where nothing is asked for. */
export function parseQuery(text: string): Matcher | null {
  const wishes = [...text.toLowerCase().matchAll(/(?:(\w+):)?("[^"]*"|\[[^\]]*\]?|\S+)/g)].map(([, field, value]) =>
    wish(field, value.replaceAll('"', "")),
  );
  return wishes.length ? (node, line) => wishes.every((fits) => fits(node, line)) : null;
}

function wish(field: string | undefined, value: string): Matcher {
  const known = FIELDS.find((f) => f === field);
  // a word with a colon of its own, such as "torch::relu"
  if (!known) return (node) => `${node.key} ${node.target}`.toLowerCase().includes(field ? `${field}:${value}` : value);
  return (node, line) => holds(known, value, node, line);
}

function holds(field: Field, value: string, node: Node, line: () => ItemId | null): boolean {
  if (field === "op") return node.target.toLowerCase().includes(value);
  if (field === "module") return node.module?.toLowerCase().includes(value) ?? false;
  if (field === "dtype") return [node.dtype, tensorType(node.dtype, null)].includes(value);
  if (field === "shape") return fitsShape(node.shape, value);
  const at = line();
  return at !== null && keyOf(at) === value;
}

/** `[8, 10]`, `8x10`, `8,*` where a star is any size, or one size that occurs. */
function fitsShape(shape: (number | string)[] | null, value: string): boolean {
  if (!shape) return false;
  const sizes = value
    .replace(/[[\]]/g, "")
    .split(/[x,\s]+/)
    .filter(Boolean);
  if (sizes.length === 1 && !value.startsWith("[")) return shape.some((s) => String(s) === sizes[0]);
  return sizes.length === shape.length && sizes.every((s, i) => s === "*" || s === String(shape[i]).toLowerCase());
}
