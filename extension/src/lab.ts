/**
 * JupyterLab and Notebook 7: the explorer of a record in an output.  While the kernel has the widget
 * that made the output, it is that widget; else (a saved notebook, a restarted kernel, a notebook
 * that is not trusted) it is drawn from the record itself and talks to no kernel.  The record's marks
 * stand beside the lines of the cells that it is about.
 */

import type { EditorView } from "@codemirror/view";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { PanelLayout, Widget } from "@lumino/widgets";
import { type Given, setMarks } from "./editor";
import { readRecord } from "./view/model/check";
import { Links } from "./view/model/links";
import { type Mark, marksOf } from "./view/model/marks";
import type { Record as CutawayRecord } from "./view/model/record";

const MIME = "application/vnd.cutaway.record+json";
const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
const BEFORE_WIDGETS_AND_HTML = -20;
const SOON_MS = 300;

/** What is used of a notebook's panel.  A renderer gets no tokens, so that it is found by its looks. */
interface NotebookPanel extends Widget {
  sessionContext: { ready: Promise<void>; session: { kernel: Kernel | null } | null };
  content: Widget & {
    widgets: Cell[];
    rendermime: { createRenderer(mimeType: string): IRenderMime.IRenderer };
    /** A cell came into sight: its editor may be a new one. */
    cellInViewportChanged?: {
      connect(slot: () => void, of: object): void;
      disconnect(slot: () => void, of: object): void;
    };
  };
}

interface Cell extends Widget {
  model: { type: string; sharedModel: { getSource(): string } };
  editor: { editor: EditorView } | null;
  ready: Promise<void>;
}

interface Kernel {
  requestCommInfo(content: { target_name: string }): Promise<{ content: { status: string; comms?: object } }>;
}

class RecordRenderer extends Widget implements IRenderMime.IRenderer {
  private model: IRenderMime.IMimeModel | null = null;
  private shown = "";
  private clean: (() => void) | null = null;
  private marks: Given[] = [];

  constructor() {
    super();
    this.layout = new PanelLayout();
    this.addClass("cutaway-output");
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    this.marks = [];
    try {
      this.marks = this.marksOf(readRecord(model.data[MIME]));
    } catch {
      // the explorer says what is wrong with the record
    }
    if (this.isAttached) await this.show_();
  }

  protected onAfterAttach(): void {
    notebookPanel(this)?.content.cellInViewportChanged?.connect(this.mark, this);
    void this.show_();
  }

  protected onBeforeDetach(): void {
    const content = notebookPanel(this)?.content;
    content?.cellInViewportChanged?.disconnect(this.mark, this);
    for (const { editor } of content?.widgets ?? []) if (editor) setMarks(editor.editor, this, []);
  }

  // ------------------------------------------------------------ marks in editors

  private marksOf(record: CutawayRecord): Given[] {
    const all = marksOf(record, new Links(record));
    return record.sources.flatMap((source, i): Given[] => {
      const marks = all.filter(({ line }) => line.startsWith(`${source.id}#`));
      return marks.length ? [{ source, marks, whole: i === 0, go: (mark) => this.go(mark) }] : [];
    });
  }

  /** Give the cells that the record is about their marks: its own cell, and those of functions it called. */
  private mark(): void {
    const content = notebookPanel(this)?.content;
    const own = content?.widgets.find((cell) => cell.contains(this));
    for (const cell of content?.widgets ?? []) {
      if (cell.model.type !== "code") continue;
      const given = this.marks.filter(({ whole }) => whole === (cell === own));
      void cell.ready.then(() => cell.editor && !this.isDisposed && setMarks(cell.editor.editor, this, given));
    }
  }

  /** Show in the explorer what a mark is about. */
  private go(mark: Mark): void {
    const explorer = this.node.querySelector(".cutaway");
    explorer?.dispatchEvent(new CustomEvent("cutaway-go", { detail: mark }));
    explorer?.scrollIntoView({ block: "nearest" });
  }

  // ------------------------------------------------------------ the explorer

  private async show_(): Promise<void> {
    const { model } = this;
    this.mark();
    const view = model?.data[WIDGET_VIEW] as { model_id?: string } | undefined;
    const panel = notebookPanel(this);
    if (!model || (view?.model_id && this.shown === view.model_id)) return;
    if (!view?.model_id || !model.trusted || !panel) return this.showRecord(model);
    if (await this.showWidget(panel, model, view.model_id, true)) return;
    await this.showRecord(model);
    if (await hasComm(panel, view.model_id)) await this.showWidget(panel, model, view.model_id, false);
  }

  /** Show the live widget; with `atOnce`, only where the page has its model already. */
  private async showWidget(
    panel: NotebookPanel,
    model: IRenderMime.IMimeModel,
    id: string,
    atOnce: boolean,
  ): Promise<boolean> {
    const renderer = widgetRenderer(panel);
    if (!renderer) return false;
    // for a model that it does not know, the renderer waits for seconds whether it comes
    const rendered = renderer.renderModel(model).catch(() => {});
    await Promise.race([rendered, new Promise((resolve) => setTimeout(resolve, SOON_MS))]);
    const isThere = "widgets" in renderer && (renderer.widgets as unknown[]).length > 0;
    if (this.isDisposed || (atOnce && !isThere)) {
      renderer.dispose();
      return false;
    }
    this.empty();
    (this.layout as PanelLayout).addWidget(renderer);
    this.shown = id;
    return true;
  }

  private async showRecord(model: IRenderMime.IMimeModel): Promise<void> {
    const { open } = (await import("./explorer.js" as string)) as typeof import("./widget");
    if (this.isDisposed) return;
    this.empty();
    const host = new Widget();
    (this.layout as PanelLayout).addWidget(host);
    this.clean = open(host.node, model.data[MIME]);
    this.shown = "record";
  }

  private empty(): void {
    this.clean?.();
    this.clean = null;
    for (const child of [...(this.layout as PanelLayout).widgets]) child.dispose();
  }

  dispose(): void {
    this.clean?.();
    this.clean = null;
    super.dispose();
  }
}

function notebookPanel(widget: Widget): NotebookPanel | null {
  for (let at = widget.parent; at; at = at.parent) {
    if ("sessionContext" in at && "content" in at && "rendermime" in (at.content as object)) return at as NotebookPanel;
  }
  return null;
}

/** What draws live widgets; null while, or where, no extension for them is there. */
function widgetRenderer(panel: NotebookPanel): IRenderMime.IRenderer | null {
  try {
    return panel.content.rendermime.createRenderer(WIDGET_VIEW);
  } catch {
    return null;
  }
}

async function hasComm(panel: NotebookPanel, id: string): Promise<boolean> {
  try {
    await panel.sessionContext.ready;
    const reply = await panel.sessionContext.session?.kernel?.requestCommInfo({ target_name: "jupyter.widget" });
    return reply?.content.status === "ok" && id in (reply.content.comms ?? {});
  } catch {
    return false; // no kernel: what is saved is shown
  }
}

const extension: IRenderMime.IExtension = {
  id: "cutaway:record",
  rendererFactory: { safe: true, mimeTypes: [MIME], createRenderer: () => new RecordRenderer() },
  rank: BEFORE_WIDGETS_AND_HTML,
  dataType: "json",
};

export default extension;
