/** The parts of the path of a module. */

/** Limits, because an untrusted record may have paths of any length. */
const MAX_DEPTH = 16;
const MAX_PATH = 1000;

/**
 * Returns the parts of a module's path below the model. If the first is an index, the model's name is put before it.
 */
export function pathWords(module: string | null): string[] {
  if (!module) return [];
  const at = module.lastIndexOf("]");
  const words = module
    .slice(at + 1, at + 1 + MAX_PATH)
    .split(".")
    .filter(Boolean)
    .slice(0, MAX_DEPTH);
  const name = /\['([^']{1,40})'\]$/.exec(module.slice(0, at + 1))?.[1];
  return name && /^\d+$/.test(words[0] ?? "") ? [`${name}.${words[0]}`, ...words.slice(1)] : words;
}
