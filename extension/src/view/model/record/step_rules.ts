/** Consistency of the recorded steps of the symbolic interpreter. */

import type { Steps } from "./record";

/** Maximal depth of nested calls: Python's own default limit. */
const MAX_CALL_DEPTH = 1000;

/** Whether every index in `steps`, which may be untrusted, is in range, and every list of entries sorted by step. */
export function isConsistent(steps: Steps): boolean {
  const { call, at, pops, pushes, calls, codes, values } = steps;
  const inside = (i: number | null, list: unknown[]) => i === null || (i >= 0 && i < list.length);
  const conditions = [
    () => call.length === at.length && call.length === pops.length && call.length === pushes.length,
    () => codes.every((c) => c.instructions.length === c.lines.length),
    () => calls.every((c) => inside(c.code, codes) && codes[c.code].lines.length > 0),
    () => calls.every((c, i) => c.caller === null || (c.caller >= 0 && c.caller < i)),
    () => maxCallDepth(steps) <= MAX_CALL_DEPTH,
    () => call.every((c, n) => inside(c, calls) && inside(at[n], codes[calls[c].code].lines)),
    () => pops.every((n) => n >= 0) && steps.results.every((r) => r.pops >= 0),
    () => pushes.every((pushed) => pushed.every((v) => inside(v, values))),
    () => steps.results.every((r) => inside(r.call, calls) && r.pushes.every((v) => inside(v, values))),
    () => steps.stores.every((s) => inside(s.call, calls) && inside(s.value, values)),
    () => steps.texts.every((t) => inside(t.value, values)),
    () =>
      [steps.results, steps.stores, steps.texts, steps.notes].every((entries) =>
        entries.every((entry, i) => !i || entries[i - 1].step <= entry.step),
      ),
  ];
  return conditions.every((law) => law());
}

/** Returns the maximal depth of nested calls. */
function maxCallDepth({ calls }: Steps): number {
  const depths: number[] = [];
  for (const { caller } of calls) depths.push(caller === null ? 1 : depths[caller] + 1);
  return depths.reduce((most, depth) => Math.max(most, depth), 0);
}
