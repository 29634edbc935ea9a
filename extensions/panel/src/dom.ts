// Small helpers to make elements; text always goes in as text, never as HTML.

type Attributes = Record<string, string | number | boolean | null | undefined>;
type Child = Node | string | null | undefined;

export function element<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child): child is Node | string => child !== null && child !== undefined));
  return made;
}

export function button(label: string, attributes: Attributes, action: () => void): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", () => {
    if (made.getAttribute("aria-disabled") !== "true") action();
  });
  return made;
}

// aria-disabled keeps the button focusable, so that focus is not lost when a step starts.
export function enable(target: HTMLElement, enabled: boolean): void {
  if (enabled) target.removeAttribute("aria-disabled");
  else target.setAttribute("aria-disabled", "true");
}

export function setText(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

// Our own SVG comes as text; titles in it may quote a proposal, so anything that could run is taken out.
export function parseSvg(text: string): Element | null {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.nodeName.toLowerCase() !== "svg") return null;
  for (const node of [root, ...root.querySelectorAll("*")]) {
    if (["script", "foreignobject", "iframe"].includes(node.nodeName.toLowerCase())) {
      node.remove();
      continue;
    }
    for (const { name, value } of [...node.attributes]) {
      if (name.startsWith("on") || (/href$/.test(name) && !value.startsWith("#"))) node.removeAttribute(name);
    }
  }
  return document.importNode(root, true);
}
