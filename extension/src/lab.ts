/**
 * JupyterLab and Notebook 7: the explorer of a record in an output.  While the kernel has the widget
 * that made the output, it is that widget; else (a saved notebook, a restarted kernel, a notebook
 * that is not trusted) it is drawn from the record itself and talks to no kernel.
 */

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { PanelLayout, Widget } from "@lumino/widgets";

const MIME = "application/vnd.cutaway.record+json";
const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";
const BEFORE_WIDGETS_AND_HTML = -20;
const SOON_MS = 300;

/** What is used of a notebook's panel.  A renderer gets no tokens, so that it is found by its looks. */
interface NotebookPanel extends Widget {
  sessionContext: { ready: Promise<void>; session: { kernel: Kernel | null } | null };
  content: Widget & { rendermime: { createRenderer(mimeType: string): IRenderMime.IRenderer } };
}

interface Kernel {
  requestCommInfo(content: { target_name: string }): Promise<{ content: { status: string; comms?: object } }>;
}

class RecordRenderer extends Widget implements IRenderMime.IRenderer {
  private model: IRenderMime.IMimeModel | null = null;
  private shown = "";
  private clean: (() => void) | null = null;

  constructor() {
    super();
    this.layout = new PanelLayout();
    this.addClass("cutaway-output");
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    if (this.isAttached) await this.show_();
  }

  protected onAfterAttach(): void {
    void this.show_();
  }

  private async show_(): Promise<void> {
    const { model } = this;
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
