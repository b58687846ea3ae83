/**
 * The plugin that puts the card "Cutaway lessons" into JupyterLab's launcher. The card has the server copy the
 * lessons to a folder of the user's (kernel_magics/server.py) and opens the first notebook.
 */

import icon from "./lessons.svg";

const COMMAND = "cutaway:open-lessons";

/** The parts of the application that are used here. */
interface App {
  commands: {
    addCommand(id: string, options: object): void;
    execute(id: string, args?: object): Promise<unknown>;
    hasCommand(id: string): boolean;
  };
  serviceManager: { serverSettings: { baseUrl: string; token: string } };
  resolveOptionalService(token: unknown): Promise<{ add(item: object): void } | null>;
}

async function activate(app: App): Promise<void> {
  const { commands } = app;
  commands.addCommand(COMMAND, {
    label: (args: { isLauncher?: boolean }) => (args.isLauncher ? "Cutaway lessons" : "Cutaway: Open the Lessons"),
    caption: "Copy the tour and the workshop on compilers to a folder, and open the tour",
    icon: (args: { isLauncher?: boolean }) => (args.isLauncher ? { name: "cutaway:lessons", svgstr: icon } : undefined),
    execute: () => openLessons(app).catch((error: Error) => notify(app, error.message)),
  });
  try {
    const { ILauncher } = await import("@jupyterlab/launcher"); // Notebook 7 has no launcher
    const launcher = await app.resolveOptionalService(ILauncher);
    launcher?.add({ command: COMMAND, args: { isLauncher: true }, category: "Other", rank: 10 });
  } catch {
    // the command exists nevertheless
  }
}

async function openLessons(app: App): Promise<void> {
  const { folder, notebook } = await copyLessons(app);
  if (app.commands.hasCommand("filebrowser:go-to-path")) {
    await app.commands.execute("filebrowser:go-to-path", { path: folder });
  }
  await app.commands.execute("docmanager:open", { path: notebook });
}

async function copyLessons(app: App): Promise<{ folder: string; notebook: string }> {
  const { baseUrl, token } = app.serviceManager.serverSettings;
  const headers: HeadersInit = { "X-XSRFToken": /\b_xsrf=([^;]*)/.exec(document.cookie)?.[1] ?? "" };
  if (token) headers.Authorization = `token ${token}`;
  const answer = await fetch(`${baseUrl}cutaway/lessons`, { method: "POST", headers });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  if (answer.status === 404) {
    throw new Error("Cutaway is not installed where JupyterLab runs. Run `cutaway lessons DIR` in a terminal.");
  }
  throw new Error(`The lessons could not be copied: ${messageOf(text)}`);
}

function messageOf(text: string): string {
  try {
    return JSON.parse(text).message;
  } catch {
    return text.slice(0, 200);
  }
}

async function notify({ commands }: App, message: string): Promise<void> {
  await commands.execute("apputils:notify", { message, type: "error", options: { autoClose: false } });
}

export default { id: "cutaway:lessons", autoStart: true, activate };
