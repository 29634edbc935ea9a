// Keys inside the panel: Enter, Space and letters are the panel's own, not the notebook's command mode; the shortcuts work anywhere in it.

const SUPPRESS = "data-lm-suppress-shortcuts"; // Lumino checks it on the key's target before it matches selectors

// With Alt and Shift. The same as the JupyterLab extension's, for where that is not installed; docs/magics.md lists them (tests/docs).
export const SHORTCUTS = {
  KeyG: ["G", "generate the next version"],
  KeyN: ["N", "show the next version that waits for a decision"],
  KeyA: ["A", "accept the version shown, or the hunks taken"],
  KeyR: ["R", "reject the version shown"],
  KeyU: ["U", "take back the last decision"],
  KeyS: ["S", "stop"],
} as const;
export type Shortcut = keyof typeof SHORTCUTS;

export function ownKeys(root: HTMLElement, shortcuts: Record<Shortcut, () => void>): () => void {
  // Before any listener of the page: the window's capture phase.
  const shield = (event: KeyboardEvent): void => {
    const target = event.target;
    if (!(target instanceof Element) || !root.contains(target) || event.altKey || event.ctrlKey || event.metaKey) return;
    target.setAttribute(SUPPRESS, "true");
    setTimeout(() => target.removeAttribute(SUPPRESS));
  };
  const act = (event: KeyboardEvent): void => {
    const action = event.altKey && event.shiftKey && !event.defaultPrevented ? shortcuts[event.code as Shortcut] : undefined;
    if (!action) return;
    event.preventDefault();
    action();
  };
  window.addEventListener("keydown", shield, true);
  root.addEventListener("keydown", act);
  return () => window.removeEventListener("keydown", shield, true);
}
