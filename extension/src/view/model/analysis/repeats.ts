/** Values of repeated modules, such as the layers of a model: those that are equal but for the module's number. */

import type { ItemId } from "../record/record";
import type { Links } from "./links";
import { pathWords } from "./module_path";

/** Fewer equal values are listed one by one. */
const MIN_REPEATS = 3;

/** The modules of nodes, with `*` for numbers, as the name of what repeated modules have in common. */
export function modulesOf(nodes: ItemId[], links: Links): string {
  return [...new Set(nodes.map((node) => modulePattern(links.node(node)?.module ?? null)))].join(", ");
}

/** Returns what nodes compute, and in which module, with `*` for numbers; "" if one is in no numbered module. */
export function patternOf(nodes: ItemId[], links: Links): string {
  const found = nodes.map((item) => {
    const node = links.node(item);
    const path = modulePattern(node?.module ?? null);
    return node && path.includes("*") ? `${path} ${node.target} ${node.dtype} ${node.shape}` : "";
  });
  return found.every(Boolean) ? found.sort().join("\n") : "";
}

/** The path of a module with `*` for numbers: `layers.*.attn`. */
export function modulePattern(module: string | null): string {
  return pathWords(module)
    .join(".")
    .replace(/(^|\.)\d+(?=\.|$)/g, "$1*");
}

/** Groups values with equal patterns, in the order of the first; a value without pattern is alone. */
export function groupRepeats<T>(values: T[], patternOf: (value: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const value of values) {
    const pattern = patternOf(value);
    if (pattern) groups.set(pattern, [...(groups.get(pattern) ?? []), value]);
  }
  const done = new Set<T[]>();
  return values.flatMap((value): T[][] => {
    const group = groups.get(patternOf(value));
    if (!group || group.length < MIN_REPEATS) return [[value]];
    if (done.has(group)) return [];
    done.add(group);
    return [group];
  });
}
