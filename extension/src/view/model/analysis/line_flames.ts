/** The time of compiling by the user's line, as far as stages work on one line after another. */

import type { Record as CutawayRecord, ItemId } from "../record/record";
import { type Flame, flamesOf } from "./flames";
import { keyOf, type Links } from "./links";

const TITLES: { [stage: string]: string } = {
  capture: "capture",
  joint: "trace of forward and backward",
};

/** Returns a tree: below it the lines, the most expensive first, and last what is not divided by line. */
export function lineFlames(record: CutawayRecord, links: Links): Flame {
  const phases = flamesOf(record);
  const root: Flame = { name: "all", title: "All lines", stage: "all", start: 0, ns: phases.ns, children: [] };
  const lines = new Map<ItemId, Flame>();
  for (const { line, stage, ns } of record.frames.flatMap((f) => f.compiles).flatMap((c) => c.line_times)) {
    if (line === null || !ns) continue;
    const found = lines.get(line) ?? lineFlame(line, record, links);
    lines.set(line, found);
    found.ns += ns;
    const known = found.children.find((child) => child.stage === stage);
    if (known) known.ns += ns;
    else {
      const title = TITLES[stage] ?? stage;
      found.children.push({ name: title, title, stage, start: 0, ns, children: [], items: [line] });
    }
  }
  root.children = [...lines.values()].sort((a, b) => b.ns - a.ns);
  const divided = root.children.reduce((sum, { ns }) => sum + ns, 0);
  const rest = root.ns - divided;
  if (rest > 0 && lines.size) root.children.push(undivided(rest, phases, record));
  else root.ns = Math.max(root.ns, divided);
  return root;
}

function lineFlame(line: ItemId, record: CutawayRecord, links: Links): Flame {
  const file = links.artifactOf(line)?.name ?? "";
  const label = record.labels[file] ?? (file.split("/").pop() || file);
  const text = links.text(line);
  return {
    name: text,
    title: `${label}:${keyOf(line)} ${text}`,
    stage: "line",
    start: 0,
    ns: 0,
    children: [],
    items: [line],
  };
}

/** Returns the steps that work on a graph as a whole. */
function undivided(ns: number, phases: Flame, record: CutawayRecord): Flame {
  const rest: Flame = {
    name: "graphs as a whole",
    title: "Steps that work on a graph as a whole",
    stage: "compile",
    start: 0,
    ns,
    children: [],
  };
  const byLine = new Map<string, number>();
  for (const { line, stage, ns: own } of record.frames.flatMap((f) => f.compiles).flatMap((c) => c.line_times)) {
    if (line !== null) byLine.set(stage, (byLine.get(stage) ?? 0) + own);
  }
  const stages = new Map<string, number>();
  for (const compile of phases.children) addOwnTime(compile, stages);
  for (const [stage, total] of stages) {
    const own = Math.min(total - (byLine.get(stage) ?? 0), ns);
    if (own > 0) rest.children.push({ name: stage, title: stage, stage, start: 0, ns: own, children: [] });
  }
  rest.children.sort((a, b) => b.ns - a.ns);
  return rest;
}

/** Adds, by stage, the time of steps that is not in steps inside them. */
function addOwnTime(flame: Flame, stages: Map<string, number>): void {
  const inside = flame.children.reduce((sum, { ns }) => sum + ns, 0);
  if (flame.stage !== "compile")
    stages.set(flame.stage, (stages.get(flame.stage) ?? 0) + Math.max(0, flame.ns - inside));
  for (const child of flame.children) addOwnTime(child, stages);
}
