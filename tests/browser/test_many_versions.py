"""A session of a thousand versions opens without a wait: its log is read, and its panel drawn."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import STEP_MS, open_notebook, run_all, write_notebook

from workbench.session import Session
from workbench.store import Store
from workbench.stored_sessions import trust_session
from workbench.views.notebook.panel import Panel

VERSIONS = 1000
SECONDS = 1.5
PATIENCE = 4  # other work on a machine that tests: this many times the seconds
OPEN = """
from workbench.session import Session
from workbench.views.notebook.panel import Panel
if "session" in globals():
    session.close()
session = Session.open({folder!r})
Panel(session)
"""

FEW = """
from workbench import Session
from workbench.views.notebook.panel import Panel
session = Session.create("softmax", executor="replay")
session.run(steps=5)
Panel(session)
"""
IN_VIEW = """() => {
    const list = document.querySelector('.cg-at-versions .cg-scroll').getBoundingClientRect();
    const shown = document.querySelector('.cg-at-versions [aria-current]')?.getBoundingClientRect();
    return shown && shown.height > 0 && shown.top >= list.top && shown.bottom <= list.bottom;
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored session whose versions are a real one's, each with a line more, below half of its own number."""
    root = tmp_path_factory.mktemp("many")
    with Session.create("softmax", root=root, executor="replay") as session:
        first = session.generate()
        assert first is not None
        session.accept(first.number)
        version = session.refine()
        assert version is not None
        found: Path = session.log.folder
    store = Store(found / "session.sqlite")
    store.db.execute("PRAGMA synchronous=OFF")
    for number in range(3, VERSIONS + 1):
        candidate = dataclasses.replace(
            version.proposal.candidate, source=f"{version.proposal.candidate.source}# {number}\n"
        )
        proposal = dataclasses.replace(
            version.proposal, parent=max(1, number // 2), title=f"step {number}", candidate=candidate
        )
        made = store.add_version(proposal, at="2026-01-01T00:00:00+00:00")
        store.add_trial(made.number, f"job {number}", version.trials[-1])
    store.close()
    assert trust_session(found)
    return found


def test_the_kernel_reads_and_shows_it_in_time(folder: Path) -> None:
    Session.open(folder).close()  # what is imported at the first time is not measured
    start = time.process_time()
    with Session.open(folder) as session:
        panel = Panel(session)
        assert len(panel.state["versions"]) == VERSIONS
        panel.close()
    assert time.process_time() - start < SECONDS * PATIENCE


def test_the_browser_draws_it_in_time(
    browser_page: Any, server: Any, folder: Path, slowness: Callable[[], float]
) -> None:
    """From the cell's start to the last row, as the page's clock has it."""
    page = browser_page
    write_notebook(server.root / "many.ipynb", OPEN.format(folder=str(folder)))
    open_notebook(page, server.lab("many.ipynb"))
    run_all(page)
    rows = f"document.querySelectorAll('.cg-at-versions button[data-version]').length === {VERSIONS}"
    page.wait_for_function(f"() => {rows}", timeout=STEP_MS)
    page.evaluate("() => { document.querySelector('.cutegen-panel').remove(); window.began = performance.now(); }")
    slowness()
    run_all(page)  # again, now with everything imported
    page.wait_for_function(f"() => {rows} && (window.took = performance.now() - window.began)", timeout=STEP_MS)
    took = page.evaluate("() => window.took / 1000")
    assert took < SECONDS * PATIENCE * slowness(), took
    shown = page.locator(".cg-at-versions [aria-current]")
    assert shown.get_attribute("data-version") == str(VERSIONS)
    page.wait_for_function(IN_VIEW)


@pytest.mark.few(1)
@pytest.mark.parametrize("lines", [1, 200], ids=["in view", "below the page"])
def test_the_selected_version_is_in_view_of_its_list(browser_page: Any, server: Any, lines: int) -> None:
    page = browser_page
    write_notebook(server.root / "selected.ipynb", f"print('\\n' * {lines})", FEW)
    open_notebook(page, server.lab("selected.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel").wait_for(timeout=STEP_MS)
    page.evaluate("() => document.querySelector('.cutegen-panel').scrollIntoView()")
    page.wait_for_function(IN_VIEW)
    assert page.locator(".cg-at-versions [aria-current]").get_attribute("data-version") == "6"
    assert page.evaluate("() => document.querySelector('.cg-at-versions .cg-scroll').scrollTop") > 0
