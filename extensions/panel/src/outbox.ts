// Sends commands to the kernel until it confirms them: a message may be lost where a connection ends and begins again (inferred). A command that comes
// twice is done once.

import type { Model } from "./types.js";

const AGAIN_MS = [1000, 2000, 4000, 8000, 16000]; // then the kernel is gone or busy with a cell, in which the messages wait in a queue

export class Outbox {
  private readonly timers = new Map<string, number>();
  private readonly page = Math.random().toString(36).slice(2); // other pages show the same widget
  private count = 0;
  private closed = false;

  constructor(private readonly model: Model) {
    model.on("msg:custom", this.confirm);
  }

  send(message: Record<string, unknown>): void {
    if (this.closed) return;
    this.count += 1;
    this.post({ ...message, id: `${this.page}-${this.count}` }, 0);
  }

  private post(message: Record<string, unknown> & { id: string }, tries: number): void {
    this.model.send(message);
    const wait = AGAIN_MS[tries];
    if (wait === undefined) this.timers.delete(message.id);
    else this.timers.set(message.id, window.setTimeout(() => this.post(message, tries + 1), wait));
  }

  private readonly confirm = (content?: unknown): void => {
    const id = String((content as { received?: unknown } | null)?.received ?? "");
    window.clearTimeout(this.timers.get(id));
    this.timers.delete(id);
  };

  close(): void {
    this.closed = true;
    this.model.off("msg:custom", this.confirm);
    for (const timer of this.timers.values()) window.clearTimeout(timer);
    this.timers.clear();
  }
}
