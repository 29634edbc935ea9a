"""What the browser tests do in JupyterLab: make a notebook, open it, run it, wait, look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

READY = """() => { const p = window.jupyterapp?.shell?.currentWidget;
    return !!(p?.sessionContext?.isReady && p.sessionContext.session?.kernel?.status === 'idle'
        && p.context?.isReady) }"""
SHOWN = """(path) => { const w = window.jupyterapp.shell.currentWidget;
    return !!w?.context?.isReady && w.context.path === path }"""
STEP_MS = 60_000
FOCUSED = """() => { const names = [];
    for (let e = document.activeElement; e; e = e.parentElement) names.push(e.className);
    return names.slice(0, 4) }"""


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of code cells that have not been run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def open_notebook(page: Any, url: str) -> None:
    page.goto(url)
    page.wait_for_function(READY, timeout=60_000)


def open_without_kernel(page: Any, lab_url: str, path: str) -> None:
    """Open a saved notebook and start no kernel for it."""
    page.goto(lab_url)
    page.wait_for_function("() => window.jupyterapp?.commands?.hasCommand('docmanager:open')", timeout=60_000)
    page.evaluate("() => window.jupyterapp.restored.then(() => null)")
    kernel = "kernelPreference: {shouldStart: false, canStart: false}"
    command(page, "docmanager:open", f"{{path: {path!r}, factory: 'Notebook', {kernel}}}")
    page.wait_for_function(SHOWN, arg=path)


def command(page: Any, name: str, arguments: str = "{}") -> None:
    """Run a JupyterLab command without waiting for its promise (a dialog would block it for ever)."""
    page.evaluate(f"() => {{ window.jupyterapp.commands.execute({name!r}, {arguments}) }}")


def run_all(page: Any) -> None:
    command(page, "notebook:run-all-cells")


def save(page: Any) -> None:
    command(page, "docmanager:save")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")


def click(page: Any, name: str) -> None:
    """Press one of the panel's buttons."""
    page.locator(".cutegen-panel").get_by_role("button", name=name, exact=True).click()


def wait_status(page: Any, text: str, where: str = ".cutegen-panel") -> None:
    status = page.locator(f"{where} [role=status]")
    try:
        status.filter(has_text=text).wait_for(timeout=STEP_MS)
    except Exception as error:
        raise AssertionError(f"the status says {status.inner_text()!r}, not {text!r}") from error


def version_status(
    page: Any, number: int, status: str, where: str = ".cutegen-panel", within_ms: int = STEP_MS
) -> None:
    """Wait until a version tree shows this version as pending, accepted or rejected."""
    prefix = "cg" if where == ".cutegen-panel" else "cutegen"
    try:
        page.locator(f"{where} button[data-version='{number}'].{prefix}-{status}").wait_for(timeout=within_ms)
    except Exception as error:
        said, focus = page.locator(f"{where} [role=status]").inner_text(), page.evaluate(FOCUSED)
        raise AssertionError(
            f"version {number} is not {status}; the status says {said!r}, the focus is in {focus}"
        ) from error


def theme(page: Any, name: str) -> None:
    command(page, "apputils:change-theme", f"{{theme: {name!r}}}")
    page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached")


def is_light(page: Any) -> bool:
    return bool(page.evaluate("() => document.body.dataset.jpThemeName === 'JupyterLab Light'"))


def restart(page: Any) -> None:
    """Restart the notebook's kernel and wait until it is idle again."""
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart() }")
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'", timeout=STEP_MS
    )
