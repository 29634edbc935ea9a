// The choice of who proposes: a language model by address, name and the name of its key's variable, or the planner.
// The key itself is never typed here: the kernel reads the variable.

import { button, element, enable, setText } from "./dom.js";
import type { Send, State } from "./types.js";

let serial = 0;

export class ModelForm {
  readonly root: HTMLElement;
  private readonly summary = element("summary");
  private readonly address: HTMLInputElement;
  private readonly name = element("input", { type: "text", "aria-label": "Name of the model", placeholder: "name of the model", autocomplete: "off" });
  private readonly variable = element("input", { type: "text", "aria-label": "Environment variable with the key", placeholder: "variable with the key, or nothing", autocomplete: "off" });
  private readonly use: HTMLButtonElement;
  private readonly planner: HTMLButtonElement;
  private readonly list = element("datalist", { id: `cutegen-addresses-${++serial}` });
  private shown = "";

  constructor(send: Send) {
    this.address = element("input", { type: "text", "aria-label": "Address of the model", placeholder: "address: http…/v1", list: this.list.id, autocomplete: "off" });
    this.use = button("Use this model", {}, () => {
      send("model", { address: this.address.value, name: this.name.value, variable: this.variable.value });
      this.variable.value = ""; // what was typed by mistake does not stay
    });
    this.planner = button("Use the planner", {}, () => send("planner"));
    this.root = element("details", { class: "cg-model" }, this.summary,
      element("div", { class: "cg-tools", role: "group", "aria-label": "Who proposes" }, this.address, this.list, this.name, this.variable, this.use, this.planner));
  }

  show(state: State): void {
    const { name, address, key, known } = state.model;
    this.list.replaceChildren(...known.map((value) => element("option", { value })));
    const said = state.llm && name ? `Proposals by ${name} at ${address} (${key})` : "Proposals by the planner or a script; set a model";
    setText(this.summary, said);
    const now = `${address} ${name}`;
    if (name && now !== this.shown) {
      this.shown = now;
      this.address.value = address;
      this.name.value = name;
    }
    enable(this.planner, state.llm);
  }

  enable(on: boolean): void {
    enable(this.use, on);
    if (!on) enable(this.planner, false);
  }
}
