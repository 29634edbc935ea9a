// Side-by-side diff with a checkbox per hunk.

import { element } from "./dom.js";
import type { Block, NumberedLine } from "./types.js";

export type Chosen = Set<number>;

function cells(line: NumberedLine | undefined, sign: "−" | "+", word: string, changed: boolean): HTMLElement[] {
  if (!line) return [element("td", { class: "cg-number" }), element("td", { class: "cg-code cg-blank", colspan: 2 })];
  const kind = changed ? (sign === "+" ? "cg-added" : "cg-removed") : "";
  const mark = changed ? [element("span", { "aria-hidden": "true" }, sign), element("span", { class: "cg-hidden" }, word)] : [];
  return [
    element("td", { class: "cg-number" }, String(line[0])),
    element("td", { class: `cg-sign ${kind}` }, ...mark),
    element("td", { class: `cg-code ${kind}` }, element("code", {}, line[1])),
  ];
}

function pair(old: NumberedLine | undefined, fresh: NumberedLine | undefined, changed: boolean): HTMLElement {
  return element("tr", {}, ...cells(old, "−", "removed: ", changed), ...cells(fresh, "+", "added: ", changed));
}

function hunkHeader(block: Extract<Block, { kind: "hunk" }>, chosen: Chosen, selectable: boolean, changed: () => void): HTMLElement {
  const text = `Hunk ${block.index}: ${block.old.length} removed, ${block.new.length} added`;
  if (!selectable) return element("tr", { class: "cg-hunk" }, element("th", { colspan: 6, scope: "rowgroup" }, text));
  const box = element("input", { type: "checkbox", "data-hunk": block.index, "data-key": `hunk-${block.index}` });
  box.checked = chosen.has(block.index);
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(block.index);
    else chosen.delete(block.index);
    changed();
  });
  const label = element("label", {}, box, ` Take hunk ${block.index}`, element("span", { class: "cg-quiet" }, ` − ${block.old.length}  + ${block.new.length} lines`));
  return element("tr", { class: "cg-hunk" }, element("th", { colspan: 6, scope: "rowgroup" }, label));
}

export function diffTable(blocks: Block[], caption: string, chosen: Chosen, selectable: boolean, changed: () => void): HTMLElement {
  if (blocks.length === 0) return element("p", { class: "cg-quiet" }, "No difference.");
  const columns = ["cg-number", "cg-sign", "cg-code", "cg-number", "cg-sign", "cg-code"].map((name) => element("col", { class: name }));
  const table = element("table", { class: "cg-diff" }, element("caption", { class: "cg-hidden" }, caption), element("colgroup", {}, ...columns));
  for (const block of blocks) {
    const body = element("tbody");
    if (block.kind === "skip") {
      body.append(element("tr", { class: "cg-skip" }, element("td", { colspan: 6 }, `… ${block.count} equal lines …`)));
    } else if (block.kind === "same") {
      for (const [old, fresh, text] of block.lines) body.append(pair([old, text], [fresh, text], false));
    } else {
      body.append(hunkHeader(block, chosen, selectable, changed));
      const height = Math.max(block.old.length, block.new.length);
      for (let n = 0; n < height; n += 1) body.append(pair(block.old[n], block.new[n], true));
    }
    table.append(body);
  }
  return table;
}

export function hunkIndices(blocks: Block[]): number[] {
  return blocks.flatMap((block) => (block.kind === "hunk" ? [block.index] : []));
}
