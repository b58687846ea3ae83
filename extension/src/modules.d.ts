/** Types of imports that build.mjs resolves itself. */

declare module "worker:*" {
  /** The bundled script of a worker. */
  const source: string;
  export default source;
}

declare module "*.svg" {
  /** The text of the file. */
  const text: string;
  export default text;
}

declare module "@jupyterlab/launcher" {
  /** The token of the launcher; JupyterLab shares the package, whose types would bring a hundred others. */
  export const ILauncher: unknown;
}
