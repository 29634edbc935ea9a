// The panel's frame: toolbar, status, sections and decisions. All work is done by the kernel; this shows state and sends commands.

import { button, element, enable, setText } from "./dom.js";
import { diffTable, hunkIndices, type Chosen } from "./diff.js";
import { ownKeys, SHORTCUTS, type Shortcut } from "./keys.js";
import { attachCommHandler } from "./comm.js";
import { ModelForm } from "./modelform.js";
import { Outbox } from "./outbox.js";
import { advice, choices, cost, log, profileTable, roofline, versionTree } from "./sections.js";
import { SearchTree } from "./searchtree.js";
import type { Model, Send, State, VersionRow } from "./types.js";

const TWO_COLUMNS = 600; // pixels; a narrower diff has one

let serial = 0;

function section(title: string, name: string): { box: HTMLElement; body: HTMLElement; heading: HTMLElement } {
  const id = `cutegen-${name}-${serial}`;
  const heading = element("h3", { id, tabindex: -1 }, title);
  const body = element("div", { class: "cg-scroll", tabindex: 0, role: "group", "aria-labelledby": id });
  return { box: element("section", { class: `cg-section cg-at-${name}`, "aria-labelledby": id }, heading, body), body, heading };
}

function keysHelp(): HTMLElement {
  const rows = Object.values(SHORTCUTS).map(([key, what]) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, `Alt+Shift+${key}`)), element("td", {}, what)));
  return element("details", { class: "cg-keys" }, element("summary", {}, "Keys"), element("table", {}, element("tbody", {}, ...rows)));
}

class View {
  readonly root: HTMLElement;
  private readonly chosen: Chosen = new Set();
  private chosenFor = "";
  private deciding: number | null = null;
  private wanted: { version: number; after: number } | null = null; // what was selected, until the kernel answers
  private unified = false;
  private gone = false;
  private readonly unseen = new Set<"versions" | "log">();
  private readonly title = element("h2");
  private readonly about = element("p", { class: "cg-quiet cg-about" });
  private readonly status = element("p", { class: "cg-status", role: "status", "aria-live": "polite" });
  private readonly progress = element("progress", { "aria-label": "Progress of the running step", max: 1 });
  private readonly refineText = element("input", { type: "text", "aria-label": "What to change next", placeholder: "what to change next" });
  private readonly runSteps = element("input", { type: "number", "aria-label": "Number of steps", min: 1, max: 50, value: 3 });
  private readonly trials = element("input", { type: "number", "aria-label": "Trials of the search", min: 1, max: 1000, value: 20 });
  private readonly choiceCount = element("input", { type: "number", "aria-label": "Number of proposals", min: 1, max: 8, value: 3 });
  private readonly modelTools = element("div", { class: "cg-tools", role: "group", "aria-label": "Language model" });
  private readonly modelForm: ModelForm;
  private readonly reason = element("input", { type: "text", "aria-label": "Reason for the decision", placeholder: "reason (kept with the decision)" });
  private readonly chosenNote = element("span", { class: "cg-quiet" });
  private readonly proposal = element("p", { class: "cg-proposal" });
  readonly versions = section("Versions", "versions");
  private readonly choices = section("Choices, side by side", "choices");
  private readonly diff = section("Diff", "diff");
  private readonly search = section("Search", "search");
  private readonly searchTree: SearchTree;
  private readonly advice = section("Advice", "advice");
  private readonly roofline = section("Roofline", "roofline");
  private readonly profile = section("Profile", "profile");
  private readonly log = section("Log", "log");
  private readonly steps: HTMLButtonElement[];
  private readonly generate: HTMLButtonElement;
  private readonly repair: HTMLButtonElement;
  private readonly stop: HTMLButtonElement;
  private readonly accept: HTMLButtonElement;
  private readonly reject: HTMLButtonElement;
  private readonly undo: HTMLButtonElement;
  private readonly open: HTMLButtonElement;

  constructor(private readonly model: Model, private readonly outbox: Outbox) {
    const send: Send = (command, values = {}) => {
      if (this.gone) this.showGone();
      else this.outbox.send({ command, ...values });
      if (command === "select") this.showWanted(Number(values.version));
    };
    // A step is shown as soon as it is asked for; the kernel's own word replaces this.
    const start: Send = (command, values = {}) => {
      if (!this.gone) this.showBusy(`${command} …`);
      send(command, values);
    };
    const shown = () => ({ version: this.selected() });
    this.generate = button("Generate", { class: "cg-primary", title: "Write and test the next version (Alt+Shift+G)" }, () => start("generate"));
    const refine = button("Refine", {}, () => start("refine", { text: this.refineText.value }));
    this.refineText.addEventListener("keydown", (event) => {
      if (event.key === "Enter") refine.click();
    });
    const test = button("Test", {}, () => start("test", shown()));
    const profile = button("Profile", {}, () => start("profile", shown()));
    const run = button("Run", { title: "Step on its own: accept what is correct and faster, reject the rest" }, () => start("run", { steps: Number(this.runSteps.value) }));
    const search = button("Search", { title: "A tree of candidates that you may steer; again: it goes on" }, () => start("search", { steps: Number(this.trials.value) }));
    this.stop = button("Stop", { class: "cg-stop", title: "End what runs or waits; what is finished is kept (Alt+Shift+S)" }, () => send("stop"));
    this.repair = button("Repair", { title: "Diagnosis, then the smallest change that cures the version shown" }, () => start("repair", shown()));
    const ask = button("Ask", { title: "A question about the version shown; no code changes" }, () => start("ask", { ...shown(), text: this.refineText.value }));
    const propose = button("Propose", { title: "Several proposals from the baseline, to choose from" }, () => start("choices", { steps: Number(this.choiceCount.value), text: this.refineText.value }));
    this.modelTools.append(this.repair, ask, element("span", { class: "cg-joined" }, this.choiceCount, propose));
    this.steps = [this.generate, test, profile, refine, run, search, ask, propose];
    this.accept = button("Accept version", { class: "cg-accept", title: "Make this version the baseline (Alt+Shift+A)" }, () => this.decide("accept"));
    this.reject = button("Reject version", { class: "cg-reject", title: "Keep the baseline (Alt+Shift+R)" }, () => this.decide("reject"));
    this.undo = button("Undo", { class: "cg-undo" }, () => send("undo"));
    this.open = button("Open again", { class: "cg-primary" }, () => this.outbox.send({ command: "open" }));
    this.open.hidden = true;
    this.send = send;
    this.start = start;

    const tools = element("div", { class: "cg-tools", role: "group", "aria-label": "Steps" }, this.generate, test, profile,
      element("span", { class: "cg-joined" }, this.refineText, refine), element("span", { class: "cg-joined" }, this.runSteps, run),
      element("span", { class: "cg-joined" }, this.trials, search), this.stop);
    const decisions = element("div", { class: "cg-tools", role: "group", "aria-label": "Decision" }, this.accept, this.reject, this.undo, this.reason, this.chosenNote);
    this.diff.heading.after(this.proposal, decisions);
    this.searchTree = new SearchTree(send);
    this.modelForm = new ModelForm(send);
    this.search.heading.after(this.searchTree.tools, this.searchTree.about);
    this.search.body.replaceChildren(this.searchTree.list);
    this.search.body.removeAttribute("tabindex"); // its rows take the focus
    this.root = element("div", { class: "cutegen-panel", role: "group", "aria-label": "CuTeGen panel" },
      element("header", {}, this.title, this.about), tools, this.modelForm.root, this.modelTools, keysHelp(), element("div", { class: "cg-state" }, this.status, this.open, this.progress),
      element("div", { class: "cg-grid" }, this.choices.box, this.versions.box, this.diff.box, this.search.box, this.advice.box, this.roofline.box, this.profile.box, this.log.box));
  }

  private readonly send: Send;
  private readonly start: Send;

  shortcuts(): Record<Shortcut, () => void> {
    return {
      KeyG: () => this.generate.click(),
      KeyN: () => this.send("next"),
      KeyA: () => this.accept.click(),
      KeyR: () => this.reject.click(),
      KeyU: () => this.undo.click(),
      KeyS: () => this.stop.click(),
    };
  }

  private selected(): number | null {
    return this.wanted?.version ?? this.model.get("state").shown;
  }

  // The version that was just selected is shown as such at once: the next step is about it, a decision waits for its diff.
  private showWanted(version: number): void {
    this.wanted = { version, after: this.model.get("live").answered };
    this.markSelected();
    this.enableDecisions(Boolean(this.model.get("live").busy));
    this.showRepair();
  }

  private markSelected(): void {
    const selected = this.selected();
    for (const row of this.versions.body.querySelectorAll<HTMLElement>(".cg-version")) {
      if (Number(row.dataset.version) === selected) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  // One column or two, by the width of the diff.
  fit(): void {
    const width = this.diff.body.clientWidth;
    if (width === 0 || this.unified === width < TWO_COLUMNS) return;
    this.unified = !this.unified;
    const state = this.model.get("state");
    this.showDiff(state, this.shownRow(state));
  }

  private shownRow(state: State): VersionRow | undefined {
    return state.versions.find((row) => row.number === state.shown);
  }

  private takesPart(state: State, row: VersionRow | undefined): boolean {
    return row !== undefined && this.selectable(state, row) && this.chosen.size < hunkIndices(state.diff).length;
  }

  private decide(kind: "accept" | "reject"): void {
    const state = this.model.get("state");
    const row = this.shownRow(state);
    if (!row) return;
    const partly = kind === "accept" && this.takesPart(state, row);
    this.deciding = row.number;
    (partly ? this.start : this.send)(kind, {
      session: state.session,
      version: row.number,
      sourceHash: row.hash,
      reason: this.reason.value,
      hunks: partly ? [...this.chosen].sort((a, b) => a - b) : null,
    });
  }

  private selectable(state: State, row: VersionRow): boolean {
    return row.status === "pending" && row.parent !== null && state.against === row.parent;
  }

  showState(): void {
    const state = this.model.get("state");
    const row = this.shownRow(state);
    const focused = this.root.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
    setText(this.title, `${state.problem}: session ${state.session}`);
    setText(this.about, `${state.executor}, ${state.arch}, rates of ${state.device}; ${cost(state)}`);
    this.versions.body.replaceChildren(versionTree({ ...state, shown: this.selected() }, this.send));
    this.unseen.add("versions");
    this.reveal();
    this.modelTools.hidden = !state.llm;
    this.modelForm.show(state);
    this.choices.box.hidden = state.choices.length === 0;
    this.choices.body.replaceChildren(choices(state, this.send));
    this.showRepair();
    this.showDiff(state, row);
    this.advice.body.replaceChildren(advice(state, this.start));
    this.enableAdvice();
    this.roofline.body.replaceChildren(roofline(state));
    this.profile.body.replaceChildren(profileTable(state));
    if (focused) this.root.querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus();
    this.followDecision(state);
  }

  // What is out of view has no layout in a notebook, and cannot be scrolled: it waits until it is seen.
  reveal(): void {
    if (!this.root.checkVisibility({ contentVisibilityAuto: true })) return;
    if (this.unseen.has("versions")) this.showSelected();
    if (this.unseen.delete("log")) this.log.body.scrollTop = this.log.body.scrollHeight;
  }

  // The selected version is in view of its list, which scrolls by itself and does not move the page. Rows get their height when they come into view, so it looks again.
  private showSelected(tries = 3): void {
    const list = this.versions.body;
    const item = list.querySelector("[aria-current]")?.getBoundingClientRect();
    const box = list.getBoundingClientRect();
    const away = !item ? 0 : item.top < box.top ? item.top - box.top - 1 : Math.max(item.bottom - box.bottom + 1, 0);
    if (away === 0) this.unseen.delete("versions");
    else {
      list.scrollTop += away;
      if (tries > 0) requestAnimationFrame(() => this.showSelected(tries - 1));
    }
  }

  private showBusy(message: string): void {
    this.root.setAttribute("aria-busy", "true");
    for (const control of [...this.steps, this.repair]) enable(control, false);
    this.enableDecisions(true);
    enable(this.stop, true);
    this.progress.hidden = false;
    this.progress.removeAttribute("value");
    setText(this.status, message);
  }

  // A whole version may be decided on while a step runs; what would run itself may not.
  private enableDecisions(busy: boolean): void {
    const state = this.model.get("state");
    const row = this.shownRow(state);
    const pending = !this.gone && row?.status === "pending" && this.selected() === row.number;
    const part = this.takesPart(state, row);
    const runs = part || row?.correct === null;
    enable(this.accept, pending && !(part && this.chosen.size === 0) && !(busy && runs));
    enable(this.reject, pending);
    enable(this.undo, !this.gone && state.undo !== null && !busy);
    setText(this.undo, state.undo ? `Undo v${state.undo.version}` : "Undo");
    this.undo.title = state.undo ? `Take back that v${state.undo.version} was ${state.undo.what} (Alt+Shift+U)` : "No decision to take back";
    this.reason.disabled = !pending;
    setText(this.accept, part ? `Accept ${this.chosen.size} of ${hunkIndices(state.diff).length} hunks` : row ? `Accept v${row.number}` : "Accept version");
    setText(this.reject, row ? `Reject v${row.number}` : "Reject version");
  }

  private enableAdvice(): void {
    for (const step of this.advice.body.querySelectorAll<HTMLElement>(".cg-step")) enable(step, !this.gone && !this.model.get("live").busy);
  }

  private showRepair(): void {
    const row = this.model.get("state").versions.find((one) => one.number === this.selected());
    enable(this.repair, !this.gone && !this.model.get("live").busy && row?.correct === false);
  }

  private showDiff(state: State, row: VersionRow | undefined): void {
    const key = `${row?.hash}/${state.against}`;
    if (key !== this.chosenFor) {
      this.chosenFor = key;
      this.chosen.clear();
      for (const index of hunkIndices(state.diff)) this.chosen.add(index);
      this.reason.value = "";
      this.diff.body.scrollTop = 0;
      this.profile.body.scrollTop = 0;
    }
    const against = state.against === null ? "nothing (the first version)" : `v${state.against}`;
    setText(this.diff.heading, row ? `Diff: v${row.number} against ${against}` : "Diff");
    const said = (state.reason.startsWith(row?.title ?? "") && state.reason) || [row?.title, state.reason].filter(Boolean).join(": ");
    setText(this.proposal, row ? `${said.replace(/\.$/, "")}. ${row.verdict}.${row.decision ? ` Decided: ${row.decision}.` : ""}` : "");
    const selectable = row !== undefined && this.selectable(state, row);
    const note = () => {
      setText(this.chosenNote, selectable ? `${this.chosen.size} of ${hunkIndices(state.diff).length} hunks taken` : "");
      this.enableDecisions(Boolean(this.model.get("live").busy));
    };
    note();
    this.diff.body.replaceChildren(row ? diffTable(state.diff, `v${row.number} against ${against}`, this.unified, this.chosen, selectable, note) : element("p", { class: "cg-quiet" }, "No version yet."));
  }

  // After a decision the version stays in view, and the focus where it is; with nothing left to decide it goes back to Generate.
  private followDecision(state: State): void {
    const decided = state.versions.find((row) => row.number === this.deciding);
    if (!decided || decided.status === "pending") return;
    this.deciding = null;
    if (state.pending.length === 0) this.generate.focus();
  }

  showSearch(): void {
    const view = this.model.get("search");
    this.search.box.hidden = view.rows.length === 0;
    if (view.rows.length === 0) return;
    setText(this.search.heading, view.head);
    this.searchTree.show(view);
  }

  showLive(): void {
    const live = this.model.get("live");
    if (this.wanted && live.answered > this.wanted.after) {
      this.wanted = null;
      this.markSelected();
    }
    this.gone = false;
    this.open.hidden = true;
    this.root.classList.remove("cg-gone");
    this.root.setAttribute("aria-busy", live.busy ? "true" : "false");
    for (const step of this.steps) enable(step, !live.busy);
    enable(this.stop, Boolean(live.busy));
    this.enableDecisions(Boolean(live.busy));
    this.showRepair();
    this.enableAdvice();
    this.searchTree.enable(true);
    this.modelForm.enable(!live.busy);
    this.progress.hidden = !live.busy;
    if (live.progress.fraction === null) this.progress.removeAttribute("value");
    else this.progress.value = live.progress.fraction;
    setText(this.status, (live.busy && live.progress.message) || live.message.text || "ready");
    this.status.classList.toggle("cg-error", live.message.kind === "error" && !live.busy);
    this.log.body.replaceChildren(log(live));
    this.unseen.add("log");
    this.reveal();
    if (live.closed) this.showClosed();
  }

  private showClosed(): void {
    this.showGone();
    this.open.hidden = false;
    const error = this.model.get("live").message;
    setText(this.status, error.kind === "error" ? error.text : "This session is closed; what you see is as it was left. Open again goes on with it.");
  }

  showGone(): void {
    this.gone = true;
    this.open.hidden = true;
    this.root.setAttribute("aria-busy", "false");
    this.root.classList.add("cg-gone");
    for (const control of [...this.steps, this.repair, this.stop, this.accept, this.reject, this.undo]) enable(control, false);
    this.reason.disabled = true;
    this.enableAdvice();
    this.searchTree.enable(false);
    this.modelForm.enable(false);
    this.progress.hidden = true;
    setText(this.status, `The kernel that ran this panel is gone. The session is saved: %load_ext workbench and %cutegen open ${this.model.get("state").session}, then run this cell again.`);
  }
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  serial += 1;
  const outbox = new Outbox(model);
  const view = new View(model, outbox);
  const state = () => view.showState();
  const live = () => view.showLive();
  const search = () => view.showSearch();
  // The widget manager tells when the kernel's side is gone (restart, shutdown); anything that comes after it proves the contrary.
  const gone = () => view.showGone();
  model.on("change:state", state);
  model.on("change:live", live);
  model.on("change:search", search);
  model.on("comm_live_update", gone);
  const release = ownKeys(view.root, view.shortcuts());
  state();
  search();
  live();
  el.append(view.root);
  const reveal = () => void requestAnimationFrame(() => view.reveal());
  const observers = [new IntersectionObserver(reveal), new ResizeObserver(reveal)];
  const fit = new ResizeObserver(() => view.fit());
  for (const one of observers) one.observe(view.versions.body);
  fit.observe(view.root);
  const greet = () => outbox.send({ command: "hello" });
  attachCommHandler(model).then(greet, greet);
  return () => {
    model.off("change:state", state);
    model.off("change:live", live);
    model.off("change:search", search);
    model.off("comm_live_update", gone);
    release();
    for (const one of [...observers, fit]) one.disconnect();
    outbox.close();
    view.root.remove();
  };
}

export default { render };
