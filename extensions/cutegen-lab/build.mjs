// Builds the prebuilt extension from lib/ into cutegen_lab/labextension/ and records a SHA-256 over all sources in build.json,
// so that a test can tell without Node whether the built files are fresh (tests/browser/test_built_files.py).
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const out = "cutegen_lab/labextension";
const folders = ["src", "style", "schema"].flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`));
const sources = ["build.mjs", "package.json", "tsconfig.json", ...folders].sort();
const hash = createHash("sha256");
for (const name of sources) hash.update(`${name}\0`).update(readFileSync(name)).update("\0");

rmSync(out, { recursive: true, force: true });
execFileSync("jupyter-builder", ["build", "."], { stdio: "inherit" });
rmSync(`${out}/schemas/cutegen-lab/package.json.orig`, { force: true });
for (const name of readdirSync(`${out}/static`)) if (name.endsWith(".map")) rmSync(`${out}/static/${name}`);
writeFileSync(`${out}/build.json`, JSON.stringify({ from: "extensions/cutegen-lab", sources_sha256: hash.digest("hex") }, null, 2) + "\n");
writeFileSync(`${out}/install.json`, readFileSync("install.json"));
