/**
 * The plugin for JupyterLab and Notebook 7 that goes from a cell to its explorer and back with the keyboard, and shows the
 * explorer of the active cell in a separate panel. The panel
 * follows the notebook: it shows the cell that becomes active, if that has an explorer, and what the cell shows after
 * it has run again. A live explorer in the panel is another view of the same widget.
 */

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { PanelLayout, Widget } from "@lumino/widgets";
import { applyChange, type EditableCells, insertCell } from "./cell_edits";
import { colourKernels } from "./kernel_cells";
import { type Rendermime, renderWidget } from "./live_widget";
import { followKernel, hasEnded, MIME, type Outputs as NotebookOutputs, widgetId } from "./outputs";
import { focusExplorer, LEAVE_EVENT } from "./view/app/focus";
import { PANEL_EVENT } from "./view/app/window_buttons";
import { type CellRequest, type EditRequest, NEW_CELL_EVENT, NOTEBOOK_EDIT_EVENT } from "./view/model/widget_model";

const COMMAND = "cutaway:open-panel";
const GO_COMMAND = "cutaway:go-to-explorer";
/** The key that goes from a cell to its explorer; Escape goes back. */
const GO_KEY = "E";
const COMMAND_MODE = ".jp-Notebook.jp-mod-commandMode:not(.jp-mod-readWrite) :focus";
const PANEL_ID = "cutaway-panel";

interface Signal {
  connect(slot: () => void, of: object): void;
  disconnect(slot: () => void, of: object): void;
}

/** Set on the page while the panel is seen: the explorers in notebooks are their first lines then. */
const OPEN = "cutawayPanelOpen";

/** The parts of the application, a notebook and a cell that are used here; plugin tokens would need their packages. */
interface App {
  commands: {
    addCommand(id: string, options: object): void;
    addKeyBinding(binding: { command: string; keys: string[]; selector: string }): void;
    execute(id: string): Promise<unknown>;
  };
  shell: Widget & {
    add(widget: Widget, area: string, options?: object): void;
    activateById(id: string): void;
    currentWidget: Widget | null;
    currentChanged: Signal | null;
  };
}

interface Notebook extends NotebookOutputs {
  context: { ready: Promise<void> };
  content: NotebookOutputs["content"] &
    EditableCells & {
      activeCell: Cell | null;
      activeCellChanged: Signal;
      rendermime: Rendermime;
    };
}

interface Cell extends Widget {
  model: { outputs?: Outputs; executionCount?: number | null };
}

interface Outputs {
  length: number;
  get(index: number): IRenderMime.IMimeModel;
  changed: Signal;
}

class ActiveCellPanel extends Widget {
  notebook: Notebook | null = null;
  private outputs: Outputs | null = null;
  private shown: IRenderMime.IMimeModel | null = null;
  private isLive = false;
  /** Counts the explorers that were begun: only the last one is shown. */
  private updates = 0;

  constructor(private readonly shell: App["shell"]) {
    super();
    this.id = PANEL_ID;
    this.addClass("cutaway-panel");
    this.title.label = "Cutaway";
    this.title.caption = "The explorer of the active cell";
    this.title.closable = true;
    this.layout = new PanelLayout();
    shell.currentChanged?.connect(this.followNotebook, this);
    this.followNotebook();
    if (!this.shown) this.showHint();
  }

  protected onAfterAttach(): void {
    this.noteVisible(this.isVisible);
  }

  protected onAfterShow(): void {
    this.noteVisible(true);
  }

  protected onAfterHide(): void {
    this.noteVisible(false);
  }

  protected onBeforeDetach(): void {
    this.noteVisible(false);
  }

  protected onCloseRequest(): void {
    this.dispose();
  }

  /** Notes on the page whether the panel is seen; then explorers have other heights, and the active cell stays in view. */
  private noteVisible(isSeen: boolean): void {
    if (isSeen === OPEN in document.body.dataset) return;
    if (isSeen) document.body.dataset[OPEN] = "";
    else delete document.body.dataset[OPEN];
    const cell = this.notebook?.isDisposed ? null : this.notebook?.content.activeCell;
    requestAnimationFrame(() => cell?.node.scrollIntoView({ block: "nearest" }));
  }

  /** Follows the current notebook; while another tab is current, the last one. */
  private followNotebook(): void {
    const current = this.shell.currentWidget;
    if (!isNotebook(current) || current === this.notebook) return;
    this.unfollow();
    this.notebook = current;
    current.content.activeCellChanged.connect(this.followCell, this);
    followKernel(current);
    current.sessionContext.statusChanged.connect(this.followKernel, this);
    this.followCell();
  }

  private unfollow(): void {
    if (!this.notebook || this.notebook.isDisposed) return;
    this.notebook.content.activeCellChanged.disconnect(this.followCell, this);
    this.notebook.sessionContext.statusChanged.disconnect(this.followKernel, this);
  }

  /** Shows the record in place of the widget of a kernel that has ended. */
  private followKernel(): void {
    if (!this.isLive || !hasEnded(widgetId(this.shown?.data ?? {}))) return;
    this.shown = null;
    this.update();
  }

  private followCell(): void {
    this.outputs?.changed.disconnect(this.update, this);
    this.outputs = this.notebook?.content.activeCell?.model.outputs ?? null;
    this.outputs?.changed.connect(this.update, this);
    this.update();
  }

  /** Shows the last record of the active cell's outputs; if it has none, what was shown stays. */
  protected onUpdateRequest(): void {
    const { outputs } = this;
    const models = Array.from({ length: outputs?.length ?? 0 }, (_, at) => outputs?.get(at));
    const model = models.findLast((each) => each && (MIME in each.data || widgetId(each.data)));
    if (model && model !== this.shown) void this.showOutput(model);
  }

  private async showOutput(model: IRenderMime.IMimeModel): Promise<void> {
    const number = ++this.updates;
    const rendermime = this.notebook?.content.rendermime;
    if (!rendermime) return;
    const id = widgetId(model.data);
    const live = model.trusted && id && !hasEnded(id) ? await liveWidget(rendermime, model) : null;
    const renderer = live ?? (MIME in model.data ? rendermime.createRenderer(MIME) : null);
    if (number !== this.updates || this.isDisposed || !renderer) {
      renderer?.dispose();
      return;
    }
    this.shown = model;
    this.isLive = live !== null;
    this.empty();
    (this.layout as PanelLayout).addWidget(renderer);
    if (!live) await renderer.renderModel(model);
    const count = this.notebook?.content.activeCell?.model.executionCount;
    this.title.label = count ? `Cutaway: In[${count}]` : "Cutaway";
  }

  private showHint(): void {
    const hint = new Widget();
    hint.addClass("cutaway-hint");
    hint.node.textContent = "Select a cell with %%compile that has run: its explorer is shown here.";
    (this.layout as PanelLayout).addWidget(hint);
  }

  private empty(): void {
    for (const child of [...(this.layout as PanelLayout).widgets]) child.dispose();
  }

  dispose(): void {
    this.shell.currentChanged?.disconnect(this.followNotebook, this);
    this.unfollow();
    this.outputs?.changed.disconnect(this.update, this);
    super.dispose();
  }
}

function isNotebook(widget: Widget | null): widget is Notebook {
  const content = widget && "content" in widget ? (widget.content as object) : null;
  return content !== null && "activeCellChanged" in content && "rendermime" in content;
}

/** Renders the live widget of an output; null if the page does not have its model, as in a notebook that was reopened. */
async function liveWidget(
  rendermime: Rendermime,
  model: IRenderMime.IMimeModel,
): Promise<IRenderMime.IRenderer | null> {
  const widget = await renderWidget(rendermime, model);
  if (widget?.appeared) return widget.renderer;
  widget?.renderer.dispose();
  return null;
}

function activate({ commands, shell }: App): void {
  let panel: ActiveCellPanel | null = null;
  const open = () => {
    if (!panel || panel.isDisposed) {
      panel = new ActiveCellPanel(shell);
      // Notebook 7 has a sidebar, and no place beside the notebook
      if (!("mode" in shell)) shell.add(panel, "right");
      else shell.add(panel, "main", { mode: "split-right", activate: false });
    }
    shell.activateById(PANEL_ID);
  };
  commands.addCommand(COMMAND, { label: "Cutaway: Show the Explorer of the Active Cell in a Panel", execute: open });
  const notebook = () => (isNotebook(shell.currentWidget) ? shell.currentWidget : panel?.notebook);
  const colour = () => colourKernels(notebook()?.content.widgets ?? []);
  const colouring = {};
  const follow = () => {
    notebook()?.content.activeCellChanged.connect(colour, colouring); // a second connection is none
    void notebook()?.context.ready.then(colour);
  };
  shell.currentChanged?.connect(follow, colouring);
  document.body.addEventListener(NOTEBOOK_EDIT_EVENT, (event) => {
    const content = notebook()?.content;
    const run = () => commands.execute("notebook:run-cell");
    if (content) void applyChange(content, event as CustomEvent<EditRequest>, run);
  });
  document.body.addEventListener(NEW_CELL_EVENT, (event) => {
    const content = notebook()?.content;
    if (content) insertCell(content, event as CustomEvent<CellRequest>);
    colour();
  });
  const goToExplorer = () => {
    const explorer = notebook()?.content.activeCell?.node.querySelector<HTMLElement>(".cutaway");
    if (explorer) focusExplorer(explorer);
  };
  commands.addCommand(GO_COMMAND, { label: "Cutaway: Go to the Explorer of the Active Cell", execute: goToExplorer });
  commands.addKeyBinding({ command: GO_COMMAND, keys: [GO_KEY], selector: COMMAND_MODE });
  document.body.addEventListener(LEAVE_EVENT, () => notebook()?.content.activeCell?.node.focus());
  document.body.addEventListener(PANEL_EVENT, () => void commands.execute(COMMAND));
  document.body.dataset.cutawayPanel = "";
}

export default { id: "cutaway:panel", autoStart: true, activate };
