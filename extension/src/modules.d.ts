/** Types of imports that build.mjs resolves itself. */

declare module "worker:*" {
  /** The bundled script of a worker. */
  const source: string;
  export default source;
}
