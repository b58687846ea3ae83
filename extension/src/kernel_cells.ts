/** Colours the cells that hold a C++ kernel as C++: JupyterLab takes every code cell for Python. */

const CPP = "text/x-c++src";
const HAS_CPP_KERNEL = /^%%kernel\b[\s\S]*\bextern "C"/;

interface CodeModel {
  type: string;
  mimeType: string;
  mimeTypeChanged: { connect(slot: () => void): void };
  sharedModel: { getSource(): string };
}

const followed = new WeakSet<CodeModel>();

/** Sets the language of these cells; it stays when the notebook sets that of all cells, as once its kernel has started. */
export function colourKernels(cells: readonly { model: { type?: string } }[]): void {
  for (const cell of cells) {
    const model = cell.model as CodeModel;
    if (model.type !== "code" || !HAS_CPP_KERNEL.test(model.sharedModel.getSource())) continue;
    if (!followed.has(model)) model.mimeTypeChanged.connect(() => colour(model));
    followed.add(model);
    colour(model);
  }
}

function colour(model: CodeModel): void {
  if (model.mimeType !== CPP && HAS_CPP_KERNEL.test(model.sharedModel.getSource())) model.mimeType = CPP;
}
