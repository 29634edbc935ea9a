// Keys inside the panel: Enter, Space and letters are the panel's own, not the notebook's command mode; four shortcuts work anywhere in it.

const SUPPRESS = "data-lm-suppress-shortcuts"; // Lumino checks it on the key's target before it matches selectors

export function ownKeys(root: HTMLElement, shortcuts: Record<string, () => void>): () => void {
  // Before any listener of the page: the window's capture phase.
  const shield = (event: KeyboardEvent): void => {
    const target = event.target;
    if (!(target instanceof Element) || !root.contains(target) || event.altKey || event.ctrlKey || event.metaKey) return;
    target.setAttribute(SUPPRESS, "true");
    setTimeout(() => target.removeAttribute(SUPPRESS));
  };
  const act = (event: KeyboardEvent): void => {
    const action = event.altKey && event.shiftKey && !event.defaultPrevented ? shortcuts[event.code] : undefined;
    if (!action) return;
    event.preventDefault();
    action();
  };
  window.addEventListener("keydown", shield, true);
  root.addEventListener("keydown", act);
  return () => window.removeEventListener("keydown", shield, true);
}
