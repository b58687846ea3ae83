// Bundles the explorer. `node build.mjs` builds once, `--watch` after every change, `--test` builds the unit tests.

import { readdirSync } from "node:fs";
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { runInNewContext } from "node:vm";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";
import { notices, packagesOf } from "./notices.mjs";

const STATIC = "../kernel_magics/static";

/** Source files of the workers, which are separate bundles. */
const inWorkers = [];

/** esbuild plugin: `import source from "worker:./file.ts"` imports the text of that file's own bundle. */
const workers = {
  name: "workers",
  setup(build) {
    build.onResolve({ filter: /^worker:/ }, ({ path, importer }) => ({
      path: resolve(dirname(importer), path.slice("worker:".length)),
      namespace: "worker",
    }));
    build.onLoad({ filter: /.*/, namespace: "worker" }, async ({ path }) => {
      const options = { ...common, entryPoints: [path], format: "iife", write: false, plugins: [graphviz] };
      const made = await esbuild.build(options);
      inWorkers.push(...Object.keys(made.metafile.inputs));
      return { contents: made.outputFiles[0].text, loader: "text" };
    });
  },
};

/** esbuild plugin: compresses Graphviz's WebAssembly, which its module contains as a string, to half its size. */
const graphviz = {
  name: "graphviz",
  setup(build) {
    build.onResolve({ filter: /^@viz-js\/viz$/ }, () => ({ path: resolve("node_modules/@viz-js/viz/src/index.js") }));
    build.onLoad({ filter: /viz\/lib\/backend\.js$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const [whole, literal] = /binaryDecode\(('(?:[^'\\]|\\.)*')\)/s.exec(source);
      const wasm = Buffer.from(runInNewContext(literal), "latin1"); // the string encodes a zero byte as U+0100
      const packed = gzipSync(wasm, { level: 9 }).toString("base64");
      const unpacked = source.replace(whole, () => `unpack("${packed}")`);
      return { contents: `import { unpack } from "${resolve("src/view/dom/unpack")}";${unpacked}` };
    });
  },
};

const common = {
  bundle: true,
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none", // writeNotices adds all of them
  metafile: true,
  logLevel: "warning",
};

const explorer = {
  ...common,
  entryPoints: ["src/widget.ts"],
  outfile: `${STATIC}/explorer.js`,
  format: "esm",
  plugins: [workers],
};
const css = {
  ...common,
  entryPoints: ["src/view/app/explorer.css"],
  outfile: `${STATIC}/explorer.css`,
  target: undefined,
};
// the extension loads the widget's module, explorer.js, as a separate chunk on first use
const lab = {
  ...common,
  entryPoints: ["src/lab.ts", "src/plugins.ts"],
  outdir: "lib",
  format: "esm",
  minify: false,
  external: ["@lumino/widgets", "@codemirror/state", "@codemirror/view", "@jupyterlab/launcher", "./explorer.js"],
  loader: { ".svg": "text" },
};
const tests = {
  ...common,
  entryPoints: readdirSync("src", { recursive: true })
    .filter((file) => file.endsWith(".test.ts"))
    .map((file) => `src/${file}`),
  outdir: "lib/test",
  entryNames: "[name]",
  format: "esm",
  platform: "node",
  minify: false,
  outExtension: { ".js": ".mjs" },
  plugins: [workers],
};

/** Writes the licence notices to NOTICES.txt and into explorer.js, which reports and notebooks embed. */
async function writeNotices(built) {
  const files = built.flatMap(({ metafile }) => Object.keys(metafile.inputs));
  const text = await notices(packagesOf([...files, ...inWorkers]));
  await writeFile(`${STATIC}/NOTICES.txt`, text);
  const script = await readFile(explorer.outfile, "utf8");
  await writeFile(explorer.outfile, `/*!\n${text.replaceAll("*/", "* /")}*/\n${script}`);
}

if (process.argv.includes("--test")) {
  await rm("lib/test", { recursive: true, force: true });
  await esbuild.build(tests);
} else if (process.argv.includes("--watch")) {
  for (const options of [explorer, css]) await (await esbuild.context(options)).watch();
} else {
  await writeNotices(await Promise.all([explorer, css, lab].map((options) => esbuild.build(options))));
  await mkdir("lib", { recursive: true });
  await copyFile(`${STATIC}/explorer.js`, "lib/explorer.js");
}
