"""The tree of a search in JupyterLab: by keyboard, steered, on light and dark, and a thousand nodes at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from axe import serious_violations
from lab import STEP_MS, is_light, open_notebook, run_all, save, theme, wait_status, write_notebook

SETUP = """
from workbench import Session
from workbench.views.notebook.panel import Panel
session = Session.create("softmax", executor="replay")
session.search("greedy", 12)
panel = Panel(session)
take, lost = panel._on_message, []
def take_all_but_the_first_order(widget, content, buffers):  # the page has to send it again
    if content["command"] == "steer" and not lost:
        lost.append(content)
    else:
        take(widget, content, buffers)
panel.on_msg(take, remove=True)
panel.on_msg(take_all_but_the_first_order)
panel
"""
LARGE = """
from workbench.views.notebook import search_view
from workbench.policies.search import SearchTree
from workbench.records.search import NodeResult, SearchCandidate, SearchEvent, SearchSetup
tree = SearchTree()
tree.apply(SearchEvent(number=0, kind="started", setup=SearchSetup(strategy="random", seed=0, constants=())))
for n in range(1, 1001):
    one = SearchCandidate(key=str(n), text=f"vector {n}", title=f"vector {n}")
    tree.apply(SearchEvent(number=tree.events, kind="added", parent=n // 3 if n % 2 else 0, candidates=(one,)))
    result = NodeResult(outcome="passed", time_s=1e-6 * (1 + n * 7919 % 1000))
    tree.apply(SearchEvent(number=tree.events, kind="tried", node=n, result=result))
session.search_tree = lambda: tree
panel.search = search_view.search_view(session)
"""
PRUNE = """
import time
from workbench.errors import UserError
for _ in range(600):  # until the first trial is done
    try:
        if session.search_tree().trials:
            break
    except UserError:
        pass
    time.sleep(0.1)
%cutegen search-tree prune 1 by hand
"""
# both cells of the notebook show the pruned node, the first the end of the search; a picture has no page text
DRAWN = """() => { const cells = window.jupyterapp.shell.currentWidget.context.model.toJSON().cells.map(
    cell => JSON.stringify(cell.outputs));
    return cells.every(text => text.includes('pruned: by hand')) && cells[0].includes('is used up'); }"""
FOCUSED = "() => document.activeElement?.getAttribute('data-item')"
# the time of a key until the page is drawn again, in ms
KEY_MS = """() => new Promise(done => {
    const start = performance.now();
    document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""


def item(page: Any, key: int | str) -> Any:
    return page.locator(f".cg-search [data-item='{key}']")


def test_a_search_is_steered_by_keyboard(
    browser_page: Any, server: Any, artefacts: Path, slowness: Callable[[], float]
) -> None:
    page = browser_page
    write_notebook(server.root / "search.ipynb", SETUP, LARGE)
    open_notebook(page, server.lab("search.ipynb"))
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")
    tree = page.get_by_role("tree", name="Nodes of the search")
    tree.wait_for(timeout=STEP_MS)
    assert "12 of 12 trials" in page.locator(".cg-at-search h3").inner_text()
    best = page.locator(".cg-search .cg-best")
    assert best.count() == 1 and "best" in best.inner_text()  # the way to it is open

    item(page, 0).focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "1" and item(page, 1).get_attribute("aria-level") == "2"
    page.keyboard.press("ArrowLeft")
    assert item(page, 1).get_attribute("aria-expanded") == "false" and item(page, 2).count() == 0
    page.keyboard.press("ArrowRight")
    assert item(page, 1).get_attribute("aria-expanded") == "true" and item(page, 2).count() == 1
    page.keyboard.press("Enter")
    assert item(page, 2).count() == 0
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "2"

    page.keyboard.press("p")
    wait_status(page, "pin: node 2")
    item(page, 2).filter(has_text="pinned").wait_for(timeout=STEP_MS)
    assert page.evaluate(FOCUSED) == "2"  # the new tree keeps the focus
    page.keyboard.press("p")
    item(page, 2).filter(has_not_text="pinned").wait_for(timeout=STEP_MS)
    page.keyboard.press("x")
    item(page, 2).filter(has_text="pruned: by a person").wait_for(timeout=STEP_MS)
    assert item(page, 2).get_attribute("class").endswith("cg-node-pruned")
    page.keyboard.press("r")
    item(page, 2).filter(has_not_text="pruned").wait_for(timeout=STEP_MS)
    page.keyboard.press("e")
    wait_status(page, "expand: node 2")
    page.keyboard.press("t")
    wait_status(page, "node 2 is the baseline")
    page.locator(".cutegen-panel button.cg-accepted").first.wait_for(timeout=STEP_MS)
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2  # no letter was the notebook's

    page.get_by_label("An idea in words for the search").fill("use 256 threads per row")
    page.keyboard.press("Enter")
    wait_status(page, "the idea is node")
    page.locator(".cg-search [role=treeitem]", has_text="an idea in words").wait_for(timeout=STEP_MS)

    assert is_light(page)  # though the test before may have chosen another theme
    page.locator(".cg-at-search").screenshot(path=artefacts / "search_light.png")
    assert serious_violations(page, ".cutegen-panel") == []
    theme(page, "JupyterLab Dark")
    page.locator(".cg-at-search").screenshot(path=artefacts / "search_dark.png")
    assert serious_violations(page, ".cutegen-panel") == []
    theme(page, "JupyterLab Light")

    run_all_but_first(page)
    page.locator(".cg-at-search h3", has_text="1000 nodes").wait_for(timeout=STEP_MS)
    drawn = page.locator(".cg-search [role=treeitem]").count()
    assert drawn < 100, drawn
    more = item(page, "more-0")
    more.scroll_into_view_if_needed()
    more.focus()
    page.keyboard.press("End")
    assert page.evaluate(FOCUSED) == "more-0"
    page.keyboard.press("Enter")
    assert page.locator(".cg-search [role=treeitem]").count() >= drawn + 40
    item(page, 2).focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(KEY_MS) < 400 * slowness()  # a busy machine; two frames are 33


@pytest.mark.slow
def test_a_search_in_the_background_is_drawn_in_its_cell_and_kept(browser_page: Any, server: Any) -> None:
    page, path = browser_page, server.root / "background.ipynb"
    start = "%load_ext workbench\n%cutegen problem softmax --executor replay\n%cutegen search-tree start --trials 6"
    write_notebook(path, start, PRUNE)
    open_notebook(page, server.lab(path.name))
    run_all(page)
    page.wait_for_function(DRAWN, timeout=2 * STEP_MS)
    save(page)
    first, second = nbformat.read(path, as_version=4).cells
    drawn = [output.data for output in first.outputs if "6 of 6 trials" in output.get("data", {}).get("text/plain", "")]
    assert len(drawn) == 1 and "image/svg+xml" in drawn[0] and "pruned: by hand" in drawn[0]["text/plain"]
    assert not [output for output in first.outputs if "the search begins" in str(output)]
    assert "pruned: by hand" in str(second.outputs)


def run_all_but_first(page: Any) -> None:
    """The second cell."""
    page.evaluate(
        "() => { const notebook = window.jupyterapp.shell.currentWidget.content; notebook.activeCellIndex = 1;"
        " window.jupyterapp.commands.execute('notebook:run-cell'); }"
    )
