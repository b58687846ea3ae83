// The notices of all third-party code in the bundles, from the licence files of the bundled packages.

import { readdir, readFile } from "node:fs/promises";

/** Notices that we wrote, for packages without a licence file or with third-party code in them. */
const WRITTEN = { "@viz-js/viz": "notices/viz-js.txt" };

/** Returns the packages of files: `node_modules/@codemirror/view/dist/index.js` belongs to @codemirror/view. */
export function packagesOf(files) {
  const found = files.map((file) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//s.exec(file)?.[1]);
  return [...new Set(found.filter(Boolean))].sort();
}

/** Returns the text of the notices. Throws if a package has none. */
export async function notices(packages) {
  const parts = await Promise.all(packages.map(notice));
  return [
    "Cutaway's explorer contains code of the packages below, under the licences that follow each name.\n",
    ...parts,
  ].join(`\n${"-".repeat(80)}\n\n`);
}

async function notice(name) {
  const folder = `node_modules/${name}`;
  const { version } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  const file = (await readdir(folder)).find((each) => /^(licen[cs]e|copying)/i.test(each));
  const path = WRITTEN[name] ?? (file && `${folder}/${file}`);
  if (!path) throw new Error(`${name} has no licence file: write its notice, see WRITTEN in notices.mjs`);
  return `${name} ${version}\n\n${(await readFile(path, "utf8")).trim()}\n`;
}
