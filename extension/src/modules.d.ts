/** What build.mjs makes of imports that are not plain modules. */

declare module "worker:*" {
  /** The bundled script of a worker. */
  const source: string;
  export default source;
}
