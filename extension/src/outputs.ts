/**
 * Reports to the kernel the explorers whose outputs have left the notebook, so that it frees them: the output was cleared or
 * its cell deleted. An output that is only not drawn (it is far away in the notebook, or the notebook was closed) is
 * still in the notebook's model, or the model is gone; then nothing is reported to the kernel.
 */

import type { Widget } from "@lumino/widgets";

export const MIME = "application/vnd.cutaway.record+json";
export const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
/** A cell that is moved leaves the notebook for a moment, and so does an output that is shown again. */
const DELAY_MS = 1000;

/** The part of a notebook panel that is used here. */
export interface Outputs extends Widget {
  sessionContext: {
    ready: Promise<void>;
    session: { kernel: Kernel | null } | null;
    statusChanged: {
      connect(slot: (context: object, status: string) => void, of?: object): void;
      disconnect(slot: (context: object, status: string) => void, of?: object): void;
    };
  };
  content: Widget & { widgets: readonly (Widget & { model: CellModel })[] };
}

interface CellModel {
  /** Only code cells have outputs. */
  outputs?: { length: number; get(index: number): { data: Record<string, unknown> } };
}

export interface Kernel {
  clientId: string;
  username: string;
  requestCommInfo(content: { target_name: string }): Promise<{ content: { status: string; comms?: object } }>;
  sendShellMessage(message: object): unknown;
}

/** Returns the id of the widget that an output shows; empty if it shows none. */
export function widgetId(data: { readonly [mimeType: string]: unknown }): string {
  return (data[WIDGET_VIEW] as { model_id?: string } | undefined)?.model_id ?? "";
}

/** The statuses of a kernel that has ended, or is about to. */
const ENDS = ["restarting", "autorestarting", "terminating", "dead"];
/** The ids of widgets whose kernel has ended: what the page still has of them does nothing. */
const ended = new Set<string>();
const followed = new WeakSet<Outputs>();

/** What draws an explorer. */
interface Renderer {
  /** The kernel of the explorer has ended. */
  kernelEnded?(): void;
}

/** Who draws an explorer, by the id of its widget's model. */
const drawn = new Map<string, { by: Set<Renderer>; panel: Outputs }>();

/** Notes it when the kernel of a notebook ends, and says so to what draws its explorers. */
export function followKernel(panel: Outputs): void {
  if (followed.has(panel)) return;
  followed.add(panel);
  panel.sessionContext.statusChanged.connect((_, status) => {
    if (!ENDS.includes(status)) return;
    for (const id of widgetIds(panel)) ended.add(id);
    const renderers = [...drawn.values()].filter((each) => each.panel === panel).flatMap(({ by }) => [...by]);
    for (const renderer of renderers) renderer.kernelEnded?.();
  });
}

/** Returns whether the kernel of a widget has ended. */
export function hasEnded(id: string): boolean {
  return ended.has(id);
}

/** Notes that `renderer` draws the output of an explorer in a notebook, or, without `panel`, in a view beside it. */
export function addRenderer(id: string, renderer: Renderer, panel: Outputs | null): void {
  const known = drawn.get(id);
  if (known) known.by.add(renderer);
  else if (panel) drawn.set(id, { by: new Set([renderer]), panel });
}

/** Notes that `renderer` is disposed. A moment later it is reported to the kernel, if the output left the notebook. */
export function removeRenderer(id: string, renderer: Renderer): void {
  const known = drawn.get(id);
  if (!known?.by.delete(renderer) || known.by.size) return;
  setTimeout(() => {
    if (known.by.size || drawn.get(id) !== known) return;
    drawn.delete(id);
    if (!known.panel.isDisposed && !widgetIds(known.panel).includes(id)) void reportRemoved(known.panel, id);
  }, DELAY_MS);
}

/** Returns the ids of all widgets in the outputs of a notebook. */
function widgetIds({ content }: Outputs): string[] {
  return content.widgets.flatMap(({ model: { outputs } }) =>
    Array.from({ length: outputs?.length ?? 0 }, (_, at) => widgetId(outputs?.get(at).data ?? {})).filter(Boolean),
  );
}

/** Sends the widget in the kernel, if the kernel still has it, the message that no output shows it. */
async function reportRemoved(panel: Outputs, id: string): Promise<void> {
  if (!(await hasComm(panel, id))) return;
  const kernel = panel.sessionContext.session?.kernel;
  kernel?.sendShellMessage({
    channel: "shell",
    header: {
      msg_id: `${id}-removed-${Date.now()}`,
      msg_type: "comm_msg",
      session: kernel.clientId,
      username: kernel.username,
      date: new Date().toISOString(),
      version: "5.2",
    },
    parent_header: {},
    metadata: {},
    content: { comm_id: id, data: { method: "custom", content: { type: "removed" } } },
    buffers: [],
  });
}

/** Returns whether the kernel has the widget with this id. */
export async function hasComm(panel: Outputs, id: string): Promise<boolean> {
  try {
    await panel.sessionContext.ready;
    const reply = await panel.sessionContext.session?.kernel?.requestCommInfo({ target_name: "jupyter.widget" });
    return reply?.content.status === "ok" && id in (reply.content.comms ?? {});
  } catch {
    return false; // no kernel
  }
}
