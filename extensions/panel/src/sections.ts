// Version tree, profile, roofline, log and cost: each makes its content anew from the state.

import { button, element, parseSvg } from "./dom.js";
import type { Choice, Live, Send, State, VersionRow } from "./types.js";

const MARKS: Record<VersionRow["status"], string> = { pending: "?", accepted: "✓", rejected: "✗", "accepted in part": "◐" };
const WIDE = new Intl.NumberFormat("en-US");

function roles(state: State, row: VersionRow): string {
  const words = [row.status as string];
  if (row.number === state.baseline) words.push("baseline");
  if (row.number === state.best) words.push("best");
  return words.join(", ");
}

export function versionTree(state: State, send: Send): HTMLElement {
  if (state.versions.length === 0) return element("p", { class: "cg-quiet" }, "No version yet: press Generate.");
  const list = element("ul", { class: "cg-tree" });
  for (const row of state.versions) {
    const pick = button("", { class: `cg-version cg-${row.status.replaceAll(" ", "-")}`, "data-key": `v${row.number}`, "data-version": row.number }, () => send("select", { version: row.number }));
    if (row.number === state.shown) pick.setAttribute("aria-current", "true");
    pick.append(
      element("span", { class: "cg-mark", "aria-hidden": "true" }, MARKS[row.status]),
      element("span", {}, element("strong", {}, `v${row.number}`), ` ${row.title}`, element("br"), element("span", { class: "cg-quiet" }, `${roles(state, row)}; by ${row.by}; ${row.verdict}`)),
    );
    const item = element("li", {}, pick);
    item.style.setProperty("--cg-depth", String(Math.min(row.depth, 6)));
    list.append(item);
  }
  return list;
}

function choice(state: State, found: Choice, send: Send): HTMLElement {
  const lines = found.hunks.flatMap((hunk) => [
    ...hunk.old.map(([at, text]) => element("div", { class: "cg-removed" }, `${at} − ${text}`)),
    ...hunk.new.map(([at, text]) => element("div", { class: "cg-added" }, `${at} + ${text}`)),
  ]);
  const name = `v${found.number} ${found.title}`;
  const look = button(`Show v${found.number}`, { "data-key": `choice-${found.number}` }, () => send("select", { version: found.number }));
  if (found.number === state.shown) look.setAttribute("aria-current", "true");
  return element("article", { class: "cg-choice", "aria-label": name }, element("p", {}, element("strong", {}, name)), element("p", { class: "cg-quiet" }, found.verdict), look,
    element("pre", { tabindex: 0, "aria-label": `Changes of v${found.number}` }, ...lines));
}

// The undecided versions of one parent beside each other; one is chosen by showing and accepting it.
export function choices(state: State, send: Send): HTMLElement {
  return element("div", { class: "cg-choices" }, ...state.choices.map((found) => choice(state, found, send)));
}

const HEADINGS = ["Line", "Source", "Instructions", "FLOPs", "Read B", "Written B", "Sectors", "Ideal", "Wavefronts", "Ideal"];

export function profileTable(state: State): HTMLElement {
  const { rows, kernels, note } = state.profile;
  const found = element("div");
  if (note) found.append(element("p", { class: "cg-quiet" }, note));
  for (const kernel of kernels) {
    const parts = [`${kernel.kernel} (${kernel.arch})`, `${kernel.registers ?? "unknown"} registers`, `${kernel.spill_bytes ?? "unknown"} B spilled`, `${kernel.shared_bytes} B static shared`];
    if (kernel.occupancy) parts.push(`occupancy ${kernel.occupancy}`);
    found.append(element("p", {}, parts.join(", ")));
  }
  if (rows.length === 0) return found;
  const head = element("tr", {}, ...HEADINGS.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map(([line, ...values]) =>
    element("tr", {}, ...[line, values.pop() ?? "", ...values].map((value) => element("td", { class: typeof value === "string" ? "cg-code" : "cg-count" }, typeof value === "number" ? WIDE.format(value) : element("code", {}, value)))),
  );
  const caption = element("caption", {}, `v${state.shown}, counted per source line, all threads`);
  found.append(element("table", { class: "cg-profile" }, caption, element("thead", {}, head), element("tbody", {}, ...body)));
  return found;
}

// The first advice of the version's diagnosis, with the button that makes its proposal.
export function advice(state: State, send: Send): HTMLElement {
  const { head, top, more, note } = state.advice;
  const found = element("div", { class: "cg-advice" });
  if (head) found.append(element("p", {}, element("strong", {}, head), note ? `; ${note}` : ""));
  else found.append(element("p", { class: "cg-quiet" }, note));
  if (!top) return found;
  const box = element("div", { class: `cg-advised cg-${top.severity}` }, element("p", {}, element("strong", {}, `${top.severity}: ${top.cause}`)));
  if (top.code) box.append(element("p", {}, element("code", {}, top.code)));
  if (top.evidence) box.append(element("p", { class: "cg-quiet" }, top.evidence));
  box.append(element("p", {}, `Change: ${top.action}.`), element("p", { class: "cg-quiet" }, `Gain: ${top.gain}.`));
  if (top.way === "apply") box.append(button("Make this proposal", { "data-key": "advice", class: "cg-step", "aria-label": `Make this proposal: ${top.probe}, v${state.shown}` }, () => send("apply", { version: state.shown, advice: top.probe })));
  else box.append(element("p", { class: "cg-quiet" }, top.way));
  found.append(box);
  if (more > 0) found.append(element("p", { class: "cg-quiet" }, `${more} more: %cutegen diagnose v${state.shown}`));
  return found;
}

export function roofline(state: State): HTMLElement {
  const found = element("div", { class: "cg-roofline" });
  const drawing = state.roofline ? parseSvg(state.roofline) : null;
  if (drawing) {
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", `Roofline of session ${state.session}; the same as text follows`);
    found.append(drawing);
  }
  if (state.rooflineText) found.append(element("details", {}, element("summary", {}, "Roofline as text"), element("pre", { tabindex: 0 }, state.rooflineText)));
  return found.childNodes.length > 0 ? found : element("p", { class: "cg-quiet" }, "No tested version yet.");
}

export function log(live: Live): HTMLElement {
  if (live.log.length === 0) return element("p", { class: "cg-quiet" }, "Nothing yet.");
  const items = live.log.map((entry) => element("li", { class: `cg-log-${entry.kind}` }, element("span", { class: "cg-quiet" }, `${entry.kind} `), entry.message));
  return element("ol", { class: "cg-log" }, ...items);
}

export function cost({ cost: { usd, tokens_in, tokens_out } }: State): string {
  const money = usd === null ? "cost unknown" : usd === 0 && tokens_in + tokens_out === 0 ? "no paid calls so far" : `$${usd.toFixed(4)} so far`;
  return tokens_in + tokens_out > 0 ? `${money}; ${WIDE.format(tokens_in)} tokens in, ${WIDE.format(tokens_out)} out` : money;
}
