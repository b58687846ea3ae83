/** The buttons that show the explorer elsewhere: on the full screen, or in JupyterLab in a separate panel. */

import { h, svg } from "../dom/elements";

/** Sent to the page to open the panel; the extension for JupyterLab listens, and marks the page with an attribute. */
export const PANEL_EVENT = "cutaway-panel";

/** Creates the buttons; that of the panel is shown by the style sheet where there can be a panel. */
export function windowButtons(): HTMLElement[] {
  const panelTitle = "Show the explorer of the active cell in a panel beside the notebook";
  const panel = h("button", { class: "to-panel", title: panelTitle }, "Panel");
  panel.onclick = () => panel.dispatchEvent(new CustomEvent(PANEL_EVENT, { bubbles: true }));
  if (!document.fullscreenEnabled) return [panel];
  const label = { title: "Full screen (Esc ends it)", "aria-label": "Full screen" };
  const full = h("button", { class: "full-screen", ...label }, corners());
  full.onclick = () => {
    if (document.fullscreenElement) void document.exitFullscreen();
    else void full.closest(".cutaway")?.requestFullscreen();
  };
  return [panel, full];
}

/** The icon of full screen: four corners. */
function corners(): SVGElement {
  const path = svg("path", { d: "M1 5V1h4M9 1h4v4M13 9v4H9M5 13H1V9" });
  return svg("svg", { viewBox: "0 0 14 14", width: 12, height: 12, "aria-hidden": "true" }, path);
}
