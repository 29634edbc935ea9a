"""The JupyterLab extension: highlighting, accept by shortcut, the side panel follows, also after kernel restart and
reload."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from axe import serious_violations
from lab import command, open_notebook, restart, version_status, wait_status, write_notebook

HERE = Path(__file__).parent
SIDE = ".cutegen-sidebar"
CREATE = f"""%load_ext workbench
from pathlib import Path
first, second = (Path({str(HERE / "candidates")!r}, name).read_text() for name in ("relu_first.py", "relu_second.py"))
if Path(".cutegen/relu").exists():
    get_ipython().run_line_magic("cutegen", "open relu")
else:
    get_ipython().run_line_magic("cutegen", "problem relu")
    session.edit(first, title="one element per thread")
"""
EDIT = 'version = session.edit(second, title="128 threads")'
BOUND = """() => window.jupyterapp.commands.keyBindings.filter(b => b.command.startsWith('cutegen:'))
    .map(b => [b.command, b.keys[0], b.selector])"""
MAGIC = '%%cutegen problem softmax --arch sm_90a\n"torch.softmax(x, -1)"'


def press_until(page: Any, keys: str, number: int, status: str) -> None:
    """Press a shortcut of the notebook, as a person does: again where nothing comes of it. A busy page takes the focus
    from a cell when its output arrives, and a message that it sends while the kernel starts a subshell may be lost.
    """
    for attempt in range(3):
        page.wait_for_function(
            "() => { const n = window.jupyterapp.shell.currentWidget; n.activate(); n.content.mode = 'command';"
            " return document.querySelector('.jp-mod-cutegen.jp-mod-commandMode:not(.jp-mod-readWrite) :focus'); }"
        )
        page.keyboard.press(keys)
        with contextlib.suppress(AssertionError) if attempt < 2 else contextlib.nullcontext():
            version_status(page, number, status, SIDE, within_ms=20_000)
            return


def highlighting(page: Any) -> None:
    editor = page.locator(".jp-Notebook .jp-CodeCell").nth(2).locator(".cm-content")
    assert editor.locator(".cutegen-magic").inner_text() == "%%cutegen"
    assert editor.locator(".cutegen-verb").inner_text() == "problem"
    assert editor.locator(".cutegen-option").inner_text() == "--arch"
    assert editor.locator(".cutegen-body").count() == 1
    assert page.locator(".jp-Notebook .jp-CodeCell").nth(0).locator(".cutegen-magic").count() == 0


def run_cells(page: Any, *indices: int) -> None:
    for index in indices:
        page.evaluate(f"() => {{ window.jupyterapp.shell.currentWidget.content.activeCellIndex = {index} }}")
        command(page, "notebook:run-cell")


def test_extension_follows_the_session(browser_page: Any, server: Any, artefacts: Path) -> None:
    page = browser_page
    write_notebook(server.root / "side.ipynb", CREATE, EDIT, MAGIC)
    open_notebook(page, server.lab("side.ipynb"))
    check_commands(page)
    highlighting(page)
    page.locator('.jp-NotebookPanel-toolbar [data-jp-item-name="cutegen"]').click()
    page.locator(SIDE).wait_for()
    wait_status(page, "No session in this notebook", SIDE)
    assert page.evaluate("() => window.jupyterapp.commands.isEnabled('cutegen:accept-version')") is False

    run_cells(page, 0)
    version_status(page, 1, "pending", SIDE)
    press_until(page, "Alt+Shift+A", 1, "accepted")

    run_cells(page, 1)
    version_status(page, 2, "pending", SIDE)
    page.screenshot(path=artefacts / "side_panel.png")
    assert serious_violations(page, SIDE) == []

    open_notebook(page, server.lab("side.ipynb", ""))
    command(page, "cutegen:show-panel")
    version_status(page, 2, "pending", SIDE)
    stale_accept(page)
    press_until(page, "Alt+Shift+R", 2, "rejected")

    restart(page)
    wait_status(page, "The kernel restarted", SIDE)
    run_cells(page, 0)
    version_status(page, 1, "accepted", SIDE)
    version_status(page, 2, "rejected", SIDE)
    assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.hasClass('jp-mod-cutegen')")


def stale_accept(page: Any) -> None:
    """An accept with another source's hash is refused, and says so."""
    command(page, "cutegen:accept-version", "{session: 'relu', version: 2, sourceHash: 'not what was shown'}")
    wait_status(page, "not the source that was shown", SIDE)
    version_status(page, 2, "pending", SIDE)


def check_commands(page: Any) -> None:
    """Each describes its arguments, and keys are bound where a notebook has a session."""
    names = [
        f"cutegen:{name}" for name in ("step", "stop", "accept-version", "reject-version", "next-pending", "show-panel")
    ]
    described = page.evaluate(
        "(names) => Promise.all(names.map(name => window.jupyterapp.commands.describedBy(name)))", names
    )
    assert all(found["args"]["type"] == "object" for found in described)
    accept = described[2]["args"]["properties"]
    assert {"session", "version", "sourceHash"} <= accept.keys()
    bound = page.evaluate(BOUND)
    assert ["cutegen:accept-version", "Alt Shift A"] in [found[:2] for found in bound]
    assert all("jp-mod-cutegen" in selector for _, _, selector in bound)
