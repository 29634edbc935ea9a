// The tree of a search: an ARIA tree with one row in the page for each node that is open, and what a person orders of the search.

import { button, element, enable, setText } from "./dom.js";
import type { NodeRow, SearchView, Send } from "./types.js";

const FIRST = 12; // children of a node that are drawn at once; "more" draws MORE further ones
const MORE = 50;
const ORDERS: [key: string, action: string, label: string, title: string][] = [
  ["p", "pin", "Pin", "Go on from this node before all others (P); again: no longer"],
  ["x", "prune", "Prune", "Close this node and all below it (X)"],
  ["r", "revive", "Revive", "Open a pruned node again (R)"],
  ["e", "expand", "Expand", "List the next candidates below this node (E)"],
  ["t", "take", "Take over", "Make its version the baseline of the session (T)"],
];

// An item of the page: a node, or what stands for the children of `number` that are not drawn.
interface Item {
  key: string;
  number: number;
  row: NodeRow | null;
  level: number;
  hidden: number;
  place: number;
  siblings: number;
}

export class SearchTree {
  readonly tools: HTMLElement;
  readonly list = element("ul", { class: "cg-search", role: "tree", "aria-label": "Nodes of the search" });
  readonly about = element("p", { class: "cg-quiet cg-node" });
  private readonly idea = element("input", { type: "text", "aria-label": "An idea in words for the search", placeholder: "an idea in words" });
  private readonly addIdea: HTMLButtonElement;
  private readonly orders: HTMLButtonElement[];
  private rows = new Map<number, NodeRow>();
  private children = new Map<number, number[]>();
  private items: Item[] = [];
  private selected = "0";
  private readonly chosen = new Map<number, boolean>(); // what the person opened or closed
  private readonly limits = new Map<number, number>();

  constructor(private readonly send: Send) {
    this.orders = ORDERS.map(([, action, label, title]) => button(label, { title, "data-order": action }, () => this.order(action)));
    this.addIdea = button("Add idea", { title: "A node below the selected one; the search makes candidates of it" }, () => this.sendIdea());
    this.idea.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.sendIdea();
    });
    this.tools = element("div", { class: "cg-tools", role: "group", "aria-label": "Orders to the search" }, ...this.orders, element("span", { class: "cg-joined" }, this.idea, this.addIdea));
    this.list.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("click", (event) => this.click(event));
  }

  show(view: SearchView): void {
    this.rows = new Map(view.rows.map((row) => [row.number, row]));
    this.children = new Map();
    for (const row of view.rows) {
      if (row.parent === null) continue;
      const found = this.children.get(row.parent);
      if (found) found.push(row.number);
      else this.children.set(row.parent, [row.number]);
    }
    this.draw();
  }

  enable(enabled: boolean): void {
    for (const control of [...this.orders, this.addIdea]) enable(control, enabled);
    this.idea.disabled = !enabled;
  }

  private isOpen(row: NodeRow): boolean {
    return this.chosen.get(row.number) ?? (row.number === 0 || (row.kept && row.status !== "pruned"));
  }

  // The open part of the tree, in order.
  private visible(): Item[] {
    const items: Item[] = [];
    const walk = (number: number, level: number, place: number, siblings: number): void => {
      const row = this.rows.get(number);
      if (!row) return;
      items.push({ key: String(number), number, row, level, hidden: 0, place, siblings });
      if (!this.isOpen(row)) return;
      const all = this.children.get(number) ?? [];
      const limit = this.limits.get(number) ?? FIRST;
      const drawn = all.length <= limit ? all : all.filter((child, at) => at < limit || this.rows.get(child)?.kept);
      const rest = all.length - drawn.length;
      const count = drawn.length + (rest > 0 ? 1 : 0);
      drawn.forEach((child, at) => walk(child, level + 1, at + 1, count));
      if (rest > 0) items.push({ key: `more-${number}`, number, row: null, level: level + 1, hidden: rest, place: count, siblings: count });
    };
    walk(0, 1, 1, 1);
    return items;
  }

  private draw(): void {
    const focused = this.list.contains(document.activeElement);
    this.items = this.visible();
    if (!this.items.some((item) => item.key === this.selected)) this.selected = this.nearest();
    this.list.replaceChildren(...this.items.map((item) => this.draws(item)));
    this.showSelected(focused);
  }

  // The selected node, or the one above it that is drawn.
  private nearest(): string {
    let row = this.rows.get(Number(this.selected.replace("more-", "")));
    while (row && !this.items.some((item) => item.key === String(row?.number))) row = row.parent === null ? undefined : this.rows.get(row.parent);
    return row ? String(row.number) : "0";
  }

  private draws(item: Item): HTMLElement {
    const made = element("li", { role: "treeitem", "data-item": item.key, "aria-level": item.level, "aria-posinset": item.place, "aria-setsize": item.siblings, tabindex: -1, "aria-selected": "false" });
    made.style.setProperty("--cg-depth", String(Math.min(item.level - 1, 12)));
    const row = item.row;
    if (!row) {
      made.append(element("span", { class: "cg-quiet" }, `… ${item.hidden} more`));
      return made;
    }
    if ((this.children.get(row.number) ?? []).length > 0) made.setAttribute("aria-expanded", String(this.isOpen(row)));
    if (row.flags.includes("best")) made.classList.add("cg-best");
    made.classList.add(`cg-node-${row.status}`);
    const tries = row.visits === 0 ? "" : `${row.visits} ${row.visits === 1 ? "try" : "tries"}`;
    const said = [row.flags.includes("best") || row.parent === null ? "" : row.status, ...row.flags, row.time, tries, row.value && `value ${row.value}`, row.note].filter(Boolean).join("; ");
    made.append(
      element("span", { class: "cg-mark", "aria-hidden": "true" }, row.mark),
      element("span", {}, element("strong", {}, String(row.number)), ` ${row.change} `, element("span", { class: "cg-quiet" }, said)),
    );
    return made;
  }

  private element(key: string): HTMLElement | null {
    return this.list.querySelector<HTMLElement>(`[data-item="${key}"]`);
  }

  private showSelected(focus: boolean): void {
    const made = this.element(this.selected);
    for (const other of this.list.querySelectorAll<HTMLElement>("[tabindex='0']")) {
      other.setAttribute("tabindex", "-1");
      other.setAttribute("aria-selected", "false");
    }
    made?.setAttribute("tabindex", "0");
    made?.setAttribute("aria-selected", "true");
    if (focus) made?.focus({ preventScroll: true });
    if (focus) made?.scrollIntoView({ block: "nearest" });
    const row = this.rows.get(Number(this.selected));
    setText(this.about, row ? `Node ${row.number}: ${row.change}${row.note ? `; ${row.note}` : ""}` : "");
  }

  private select(key: string): void {
    this.selected = key;
    this.showSelected(true);
  }

  private step(by: number): void {
    const at = this.items.findIndex((item) => item.key === this.selected);
    const next = this.items[Math.min(Math.max(at + by, 0), this.items.length - 1)];
    if (next) this.select(next.key);
  }

  private setOpen(row: NodeRow, open: boolean): void {
    this.chosen.set(row.number, open);
    this.draw();
  }

  // Enter: opens or closes a node, or draws more children.
  private activate(item: Item | undefined): void {
    if (!item) return;
    if (item.row) {
      if ((this.children.get(item.number) ?? []).length > 0) this.setOpen(item.row, !this.isOpen(item.row));
      return;
    }
    const before = new Set((this.items.map((one) => one.key)));
    this.limits.set(item.number, (this.limits.get(item.number) ?? FIRST) + MORE);
    this.draw();
    const first = this.items.find((one) => !before.has(one.key) && one.row?.parent === item.number);
    if (first) this.select(first.key);
  }

  private right(item: Item | undefined): void {
    if (!item?.row) return;
    if (!this.isOpen(item.row) && (this.children.get(item.number) ?? []).length > 0) this.setOpen(item.row, true);
    else if ((this.children.get(item.number) ?? []).length > 0) this.step(1);
  }

  private left(item: Item | undefined): void {
    if (!item) return;
    if (item.row && this.isOpen(item.row) && (this.children.get(item.number) ?? []).length > 0) this.setOpen(item.row, false);
    else if (item.row && item.row.parent !== null) this.select(String(item.row.parent));
    else if (!item.row) this.select(String(item.number));
  }

  private press(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const item = this.items.find((one) => one.key === this.selected);
    const moves: Record<string, () => void> = {
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      ArrowRight: () => this.right(item),
      ArrowLeft: () => this.left(item),
      Home: () => this.step(-this.items.length),
      End: () => this.step(this.items.length),
      Enter: () => this.activate(item),
      " ": () => this.activate(item),
    };
    for (const [key, action] of ORDERS) moves[key] = () => this.order(action);
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  }

  private click(event: MouseEvent): void {
    const key = event.target instanceof Element ? event.target.closest("[data-item]")?.getAttribute("data-item") : null;
    const item = this.items.find((one) => one.key === key);
    if (!item) return;
    this.select(item.key);
    this.activate(item);
  }

  private order(action: string): void {
    const row = this.rows.get(Number(this.selected));
    if (!row || this.idea.disabled) return;
    const pinned = action === "pin" && row.flags.includes("pinned");
    this.send("steer", { action: pinned ? "unpin" : action, node: row.number });
  }

  private sendIdea(): void {
    const text = this.idea.value.trim();
    if (!text || this.idea.disabled) return;
    const row = this.rows.get(Number(this.selected));
    this.send("steer", { action: "idea", node: row?.number ?? 0, text });
    this.idea.value = "";
  }
}
