// What the kernel's side of the comm sends (workbench/views/labcomm.py).

export const TARGET = 'cutegen';

export interface IVersion {
  number: number;
  parent: number | null;
  depth: number;
  title: string;
  by: string;
  hash: string;
  status: 'pending' | 'accepted' | 'rejected';
  verdict: string;
}

export interface IState {
  session: string;
  problem: string;
  executor: string;
  arch: string;
  device: string;
  versions: IVersion[];
  pending: number[];
  baseline: number | null;
  best: number | null;
  shown: number | null;
  cost: { usd: number | null; tokens_in: number; tokens_out: number };
  busy: string;
  progress: { message: string; fraction: number | null };
  message: { kind: string; text: string };
}

export interface IMessage {
  kind: 'open' | 'state';
  state?: IState | null;
  error?: string;
}
