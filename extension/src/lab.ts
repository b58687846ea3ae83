/**
 * The extension for JupyterLab and Notebook 7: renders a record in an output as the explorer. If the kernel still has
 * the widget of the output, the widget is shown; otherwise (a saved notebook, a restarted kernel, an untrusted
 * notebook) the explorer is created from the record and does not use the kernel. The record's marks are shown in the
 * editors of the cells that it describes.
 */

import type { EditorView } from "@codemirror/view";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { PanelLayout, Widget } from "@lumino/widgets";
import { type SourceMarks, setMarks } from "./editor";
import { type Rendermime, renderWidget } from "./live_widget";
import { addRenderer, followKernel, hasComm, hasEnded, MIME, type Outputs, removeRenderer, widgetId } from "./outputs";
import { Links } from "./view/model/analysis/links";
import { type Mark, marksOf } from "./view/model/analysis/marks";
import type { Record as CutawayRecord } from "./view/model/record/record";
import { unpackRecord } from "./view/model/record/unpack";
import { takeOver, type WidgetModel } from "./view/model/widget_model";

const RENDERER_RANK = -20;

/**
 * The part of a notebook panel that is used here. A renderer gets no plugin tokens, so the panel is found by its
 * fields.
 */
interface NotebookPanel extends Outputs {
  content: Outputs["content"] & {
    widgets: Cell[];
    rendermime: Rendermime;
    /** A cell became visible; its editor may be new. */
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

/** The heights of the explorers that were shown last, by output area. */
const heights = new WeakMap<Element, number>();

/** Notes how high an explorer is, for the one that takes its place: without it, the page would move meanwhile. */
function noteHeight({ target }: Event): void {
  const area = target instanceof HTMLElement ? target.closest(".jp-OutputArea") : null;
  if (area) heights.set(area, (target as HTMLElement).offsetHeight);
}

document.addEventListener("cutaway-shown", noteHeight);

class RecordRenderer extends Widget implements IRenderMime.IRenderer {
  private model: IRenderMime.IMimeModel | null = null;
  private shown = "";
  private removeExplorer: (() => void) | null = null;
  private marks: SourceMarks[] = [];
  /** The id of the widget in the kernel that the output shows. */
  private widget = "";
  /** The model of the explorer that is shown. */
  private explored: WidgetModel | null = null;

  constructor() {
    super();
    this.layout = new PanelLayout();
    this.addClass("cutaway-output");
    this.node.addEventListener("cutaway-shown", (event) => {
      this.node.style.minHeight = "";
      this.keepState((event as CustomEvent<WidgetModel>).detail);
    });
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    this.explored = null;
    this.marks = [];
    this.trackWidget();
    void this.findMarks(model);
    if (this.isAttached) await this.render();
  }

  protected onAfterAttach(): void {
    this.trackWidget();
    notebookPanel(this)?.content.cellInViewportChanged?.connect(this.updateMarks, this);
    if (!this.shown) this.keepHeight(heights.get(this.node.closest(".jp-OutputArea") ?? this.node) ?? 0);
    void this.render();
  }

  protected onBeforeDetach(): void {
    const content = notebookPanel(this)?.content;
    content?.cellInViewportChanged?.disconnect(this.updateMarks, this);
    for (const { editor } of content?.widgets ?? []) if (editor) setMarks(editor.editor, this, []);
  }

  // ------------------------------------------------------------ marks in editors

  private async findMarks(model: IRenderMime.IMimeModel): Promise<void> {
    try {
      const marks = this.sourceMarks(await unpackRecord(model.data[MIME]));
      if (this.model !== model || this.isDisposed) return;
      this.marks = marks;
      if (this.isAttached) this.updateMarks();
    } catch {
      // the explorer shows why the record is refused
    }
  }

  private sourceMarks(record: CutawayRecord): SourceMarks[] {
    if (record.covered.length) return []; // marks would say what is to be predicted
    const all = marksOf(record, new Links(record));
    return record.sources.flatMap((source, i): SourceMarks[] => {
      const marks = all.filter(({ line }) => line.startsWith(`${source.id}#`));
      return marks.length ? [{ source, marks, whole: i === 0, go: (mark) => this.go(mark) }] : [];
    });
  }

  /**
   * Updates the marks in the cells of the record: the cell of this output, and cells that define functions it called.
   */
  private updateMarks(): void {
    const content = notebookPanel(this)?.content;
    const own = content?.widgets.find((cell) => cell.contains(this));
    for (const cell of content?.widgets ?? []) {
      if (cell.model.type !== "code") continue;
      const marks = this.marks.filter(({ whole }) => whole === (cell === own));
      void cell.ready.then(() => cell.editor && !this.isDisposed && setMarks(cell.editor.editor, this, marks));
    }
  }

  /** Shows a mark in the explorer. */
  private go(mark: Mark): void {
    const explorer = this.node.querySelector(".cutaway");
    explorer?.dispatchEvent(new CustomEvent("cutaway-go", { detail: mark }));
    explorer?.scrollIntoView({ block: "nearest" });
  }

  // ------------------------------------------------------------ the explorer

  private trackWidget(): void {
    const id = this.model?.trusted ? widgetId(this.model.data) : "";
    if (this.widget && id !== this.widget) removeRenderer(this.widget, this);
    this.widget = id;
    const panel = notebookPanel(this);
    if (id) addRenderer(id, this, panel);
    if (panel) followKernel(panel);
  }

  /** Shows the record in place of the widget, which can do nothing any more. */
  kernelEnded(): void {
    if (this.model && this.isAttached && this.shown === this.widget) void this.showRecord(this.model);
  }

  private async render(): Promise<void> {
    const { model } = this;
    this.updateMarks();
    const id = widgetId(model?.data ?? {});
    const panel = notebookPanel(this);
    if (!model || (id && this.shown === id)) return;
    if (!id || !model.trusted || !panel || hasEnded(id)) return this.showRecord(model);
    if (await this.showWidget(panel, model, id, true)) return;
    await this.showRecord(model);
    if (await hasComm(panel, id)) await this.showWidget(panel, model, id, false);
  }

  /** Shows the live widget; with `atOnce`, only if the page has its model already. Returns whether it is shown. */
  private async showWidget(
    panel: NotebookPanel,
    model: IRenderMime.IMimeModel,
    id: string,
    atOnce: boolean,
  ): Promise<boolean> {
    const widget = await renderWidget(panel.content.rendermime, model);
    if (!widget) return false;
    const { renderer, appeared } = widget;
    if (this.isDisposed || (atOnce && !appeared)) {
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
    this.removeExplorer = open(host.node, model.data[MIME], fileOf(this));
    this.shown = "record";
  }

  /** A live explorer shows what was opened and pinned in the saved one that it replaces. */
  private keepState(model: WidgetModel): void {
    if (this.explored && this.explored !== model) takeOver(this.explored, model);
    this.explored = model;
  }

  /** Takes this height until an explorer is shown. */
  private keepHeight(height: number): void {
    this.node.style.minHeight = `${height}px`;
  }

  private empty(): void {
    this.keepHeight(this.node.offsetHeight);
    this.removeExplorer?.();
    this.removeExplorer = null;
    for (const child of [...(this.layout as PanelLayout).widgets]) child.dispose();
  }

  dispose(): void {
    this.removeExplorer?.();
    this.removeExplorer = null;
    if (this.widget) removeRenderer(this.widget, this);
    super.dispose();
  }
}

function notebookPanel(widget: Widget): NotebookPanel | null {
  for (let at = widget.parent; at; at = at.parent) {
    if ("sessionContext" in at && "content" in at && "rendermime" in (at.content as object)) return at as NotebookPanel;
  }
  return null;
}

/** Returns the name of the notebook whose output a widget is, or that the panel shows; empty if it is in none. */
function fileOf(widget: Widget): string {
  for (let at = widget.parent; at; at = at.parent) {
    const { context } = ("notebook" in at ? at.notebook : at) as { context?: { path?: string } };
    if (context?.path) return context.path.slice(context.path.lastIndexOf("/") + 1);
  }
  return "";
}

const extension: IRenderMime.IExtension = {
  id: "cutaway:record",
  rendererFactory: { safe: true, mimeTypes: [MIME], createRenderer: () => new RecordRenderer() },
  rank: RENDERER_RANK,
  dataType: "json",
};

export default extension;
