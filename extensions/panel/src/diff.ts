// The diff with a checkbox per hunk: side by side, or in one column where there is no room for two.

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

// What a hunk or equal lines make of rows: pairs, or in one column the old lines and then the new ones.
function rows(block: Exclude<Block, { kind: "skip" }>, unified: boolean): HTMLElement[] {
  if (block.kind === "same") {
    return block.lines.map(([old, fresh, text]) => (unified ? element("tr", {}, ...cells([fresh, text], "+", "", false)) : pair([old, text], [fresh, text], false)));
  }
  if (unified) {
    const old = block.old.map((line) => element("tr", {}, ...cells(line, "−", "removed: ", true)));
    return [...old, ...block.new.map((line) => element("tr", {}, ...cells(line, "+", "added: ", true)))];
  }
  return Array.from({ length: Math.max(block.old.length, block.new.length) }, (_, n) => pair(block.old[n], block.new[n], true));
}

function hunkHeader(block: Extract<Block, { kind: "hunk" }>, span: number, chosen: Chosen, selectable: boolean, changed: () => void): HTMLElement {
  const text = `Hunk ${block.index}: ${block.old.length} removed, ${block.new.length} added`;
  if (!selectable) return element("tr", { class: "cg-hunk" }, element("th", { colspan: span, scope: "rowgroup" }, text));
  const box = element("input", { type: "checkbox", "data-hunk": block.index, "data-key": `hunk-${block.index}` });
  box.checked = chosen.has(block.index);
  box.addEventListener("change", () => {
    if (box.checked) chosen.add(block.index);
    else chosen.delete(block.index);
    changed();
  });
  const label = element("label", {}, box, ` Take hunk ${block.index}`, element("span", { class: "cg-quiet" }, ` − ${block.old.length}  + ${block.new.length} lines`));
  return element("tr", { class: "cg-hunk" }, element("th", { colspan: span, scope: "rowgroup" }, label));
}

export function diffTable(blocks: Block[], caption: string, unified: boolean, chosen: Chosen, selectable: boolean, changed: () => void): HTMLElement {
  if (blocks.length === 0) return element("p", { class: "cg-quiet" }, "No difference.");
  const side = ["cg-number", "cg-sign", "cg-code"];
  const columns = (unified ? side : [...side, ...side]).map((name) => element("col", { class: name }));
  const table = element("table", { class: "cg-diff" }, element("caption", { class: "cg-hidden" }, caption), element("colgroup", {}, ...columns));
  for (const block of blocks) {
    const body = element("tbody");
    if (block.kind === "skip") {
      body.append(element("tr", { class: "cg-skip" }, element("td", { colspan: columns.length }, `… ${block.count} equal lines …`)));
    } else {
      if (block.kind === "hunk") body.append(hunkHeader(block, columns.length, chosen, selectable, changed));
      body.append(...rows(block, unified));
    }
    table.append(body);
  }
  return table;
}

export function hunkIndices(blocks: Block[]): number[] {
  return blocks.flatMap((block) => (block.kind === "hunk" ? [block.index] : []));
}
