// Bundles src/ into workbench/views/notebook/static/panel.js and panel.css. The first line of each records a SHA-256 over all sources,
// so that a test can tell without Node whether the built files are fresh (tests/browser/test_built_files.py).
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { build } from "esbuild";

const out = process.argv[2] ?? "../../workbench/views/notebook/static";
const sources = ["build.mjs", "package.json", "tsconfig.json", ...readdirSync("src").map((name) => `src/${name}`)].sort();
const hash = createHash("sha256");
for (const name of sources) hash.update(`${name}\0`).update(readFileSync(name)).update("\0");
const banner = `/* built from extensions/panel; sources sha256 ${hash.digest("hex")} */`;

const common = { bundle: true, minify: true, legalComments: "none", charset: "utf8", target: "es2021" };
await build({ ...common, entryPoints: ["src/index.ts"], format: "esm", outfile: `${out}/panel.js`, banner: { js: banner } });
await build({ ...common, entryPoints: ["src/panel.css"], outfile: `${out}/panel.css`, banner: { css: banner } });
