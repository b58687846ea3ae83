/** Renders the live widget of an output through JupyterLab's widget manager. */

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { WIDGET_VIEW } from "./outputs";

export interface Rendermime {
  createRenderer(mimeType: string): IRenderMime.IRenderer;
}

/** How long a renderer gets: it waits several seconds for a model that the page does not have. */
const WIDGET_TIMEOUT_MS = 300;

/**
 * Renders the widget of `model`; the result says whether it has appeared. Returns null if no widget extension is
 * installed or loaded yet.
 */
export async function renderWidget(
  rendermime: Rendermime,
  model: IRenderMime.IMimeModel,
): Promise<{ renderer: IRenderMime.IRenderer; appeared: boolean } | null> {
  let renderer: IRenderMime.IRenderer;
  try {
    renderer = rendermime.createRenderer(WIDGET_VIEW);
  } catch {
    return null;
  }
  const rendered = renderer.renderModel(model).catch(() => {});
  await Promise.race([rendered, new Promise((resolve) => setTimeout(resolve, WIDGET_TIMEOUT_MS))]);
  return { renderer, appeared: "widgets" in renderer && (renderer.widgets as unknown[]).length > 0 };
}
