// Bundles src into one script and one style sheet, with the same bytes every time.
// node build.mjs [FOLDER]: writes into ../src/calibrant/studio/static unless another folder is given.
import { build } from "esbuild";
import { mkdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ? resolve(process.argv[2]) : resolve(here, "../src/calibrant/studio/static");
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: [{ in: "src/main.tsx", out: "calibrant" }, { in: "src/style.css", out: "calibrant" }],
  outdir: out,
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: "/* Calibrant (MIT), with Preact (MIT, (c) 2015-present Jason Miller) */" },
  logLevel: "warning",
});
for (const name of ["calibrant.js", "calibrant.css"]) {
  const bytes = readFileSync(join(out, name));
  // Both are put inside an HTML file, where such an end tag would end them early.
  if (/<\/(script|style)|<!--/i.test(bytes.toString())) throw new Error(`${name} must not hold an end tag.`);
  console.log(`${name}: ${bytes.length} bytes, ${gzipSync(bytes).length} gzipped`);
}
