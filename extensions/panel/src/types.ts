// What the kernel sends (workbench/views/notebook/controller.py and snapshot.py) and what goes back.

export interface VersionRow {
  number: number;
  parent: number | null;
  depth: number;
  title: string;
  reason: string;
  by: string;
  hash: string;
  status: "pending" | "accepted" | "rejected" | "accepted in part";
  correct: boolean | null;
  verdict: string;
  decision: string;
  gain: number | null;
}

export type NumberedLine = [number, string];

export type Block =
  | { kind: "same"; lines: [number, number, string][] }
  | { kind: "skip"; count: number }
  | { kind: "hunk"; index: number; old: NumberedLine[]; new: NumberedLine[] };

export interface Choice extends VersionRow {
  hunks: Extract<Block, { kind: "hunk" }>[];
}

export interface Kernel {
  kernel: string;
  arch: string;
  registers: number | null;
  spill_bytes: number | null;
  shared_bytes: number;
  occupancy: string;
}

export interface TopAdvice {
  probe: string;
  severity: "high" | "medium" | "low";
  cause: string;
  action: string;
  evidence: string;
  gain: string;
  code: string;
  way: string;
}

export interface State {
  session: string;
  problem: string;
  executor: string;
  arch: string;
  device: string;
  versions: VersionRow[];
  pending: number[];
  baseline: number | null;
  best: number | null;
  undo: { version: number; what: string } | null;
  cost: { usd: number | null; tokens_in: number; tokens_out: number };
  llm: boolean;
  model: { name: string; address: string; key: string; known: string[] };
  shown: number | null;
  against: number | null;
  reason: string;
  diff: Block[];
  choices: Choice[];
  profile: { rows: (string | number)[][]; kernels: Kernel[]; note: string };
  advice: { head: string; top: TopAdvice | null; more: number; note: string };
  roofline: string;
  rooflineText: string;
}

export interface Live {
  busy: string;
  progress: { message: string; fraction: number | null };
  message: { kind: "info" | "error"; text: string };
  answered: number; // counts the answers to commands, so that each one is a change
  log: { kind: string; message: string; version: number | null }[];
  closed?: boolean;
}

export interface NodeRow {
  number: number;
  parent: number | null;
  depth: number;
  change: string;
  status: "root" | "open" | "passed" | "failed" | "screened" | "pruned";
  mark: string;
  visits: number;
  value: string;
  time: string;
  note: string;
  flags: string[];
  kept: boolean;
  tried: boolean;
}

export interface SearchView {
  head: string;
  rows: NodeRow[];
}

export interface Model {
  get(name: "state"): State;
  get(name: "live"): Live;
  get(name: "search"): SearchView;
  get(name: "widget_id"): string;
  widget_manager?: { get_model(id: string): Promise<unknown> };
  on(name: string, callback: (content?: unknown) => void): void;
  off(name: string, callback: (content?: unknown) => void): void;
  send(content: unknown): void;
}

export type Send = (command: string, values?: Record<string, unknown>) => void;
