/** The plugins for JupyterLab and Notebook 7. */

import lessons from "./lessons";
import panel from "./panel";

export default [panel, lessons];
