"""The panel in a narrow pane of a wide JupyterLab: nothing is cut or overlaps, all is within reach, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import serious_violations
from lab import STEP_MS, click, command, open_notebook, run_all, theme, wait_status, write_notebook

SETUP = """
from pathlib import Path
from workbench import Session, problems
from workbench.views.notebook.panel import Panel
problem = problems.load("softmax", settings=(("batch_size", 64), ("dim", 512)))
session = Session.create(problem, executor="emulator")
session.accept(session.generate().number, reason="the first one")
session.refine()
session.reject(session.refine().number, "spills with_a_long_word_that_has_no_place_to_break_anywhere")
session.search("tree", 3)
Panel(session)
"""
WIDTH = 480
# What leaves the panel, and what leaves the box that holds it without a bar to scroll by.
CUT = """() => {
    const panel = document.querySelector('.cutegen-panel');
    const box = panel.getBoundingClientRect();
    const scrolls = (one) => one.closest('.cg-scroll, pre') !== null;
    const said = (one) => `${one.tagName}.${one.className}: ${(one.textContent || one.placeholder || '').slice(0, 60)}`;
    const seen = [...panel.querySelectorAll('*')].filter(
        (one) => one.checkVisibility({contentVisibilityAuto: true}) && !one.closest('svg, .cg-hidden'));
    const left = seen.filter((one) => !scrolls(one) && (one.getBoundingClientRect().right > box.right + 1
        || one.getBoundingClientRect().left < box.left - 1));
    const hidden = seen.filter((one) => ['hidden', 'clip'].includes(getComputedStyle(one).overflowX)
        && getComputedStyle(one).textOverflow !== 'ellipsis' && one.scrollWidth > one.clientWidth + 1);
    const spilt = seen.filter((one) => !scrolls(one) && getComputedStyle(one).overflowX === 'visible' && one.clientWidth
        && !['TABLE', 'TBODY', 'TR'].includes(one.tagName) && one.scrollWidth > one.clientWidth + 1);
    const short = seen.filter((one) => one.tagName === 'BUTTON' && one.scrollWidth > one.clientWidth + 1);
    return [...left, ...hidden, ...spilt, ...short].map(said);
}"""
# Pairs of controls and headings that lie over one another.
OVERLAPS = """() => {
    const panel = document.querySelector('.cutegen-panel');
    const all = 'button, input, summary, h2, h3, .cg-status, progress, .cg-proposal';
    const seen = [...panel.querySelectorAll(all)].filter(
        (one) => one.checkVisibility({contentVisibilityAuto: true}) && !one.closest('.cg-scroll'));
    const found = [];
    for (const [at, one] of seen.entries()) for (const two of seen.slice(at + 1)) {
        const a = one.getBoundingClientRect(), b = two.getBoundingClientRect();
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 1 && !one.contains(two) && !two.contains(one))
            found.push(`${one.textContent} / ${two.textContent}`);
    }
    return found;
}"""
SECTIONS = """() => [...document.querySelectorAll('.cutegen-panel .cg-section')].filter((one) => one.checkVisibility())
    .map((one) => Math.round(one.getBoundingClientRect().width))"""

# Selects a version and profiles at once; returns what is then shown as selected, and whether decisions wait.
BOTH_CLICKS = """(number) => {
    const panel = document.querySelector('.cutegen-panel');
    panel.querySelector(`.cg-at-versions button[data-version='${number}']`).click();
    const selected = [...panel.querySelectorAll('.cg-version[aria-current] strong')].map((one) => one.textContent);
    const decides = panel.querySelector('.cg-accept').getAttribute('aria-disabled');
    [...panel.querySelectorAll('button')].find((one) => one.textContent === 'Profile').click();
    return {selected, decides};
}"""


def make_narrow(page: Any) -> None:
    """Open a file to the right of the notebook, and move the bar between until the panel is WIDTH wide."""
    command(page, "docmanager:open", "{path: 'beside.txt', options: {mode: 'split-right'}}")
    page.locator(".jp-FileEditor").wait_for()
    bar = page.locator("#jp-main-dock-panel > .lm-DockPanel-handle:visible").first
    for _ in range(4):
        width = page.locator(".cutegen-panel").bounding_box()["width"]
        place = bar.bounding_box()
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + WIDTH - width, y, steps=4)
        page.mouse.up()
        page.wait_for_timeout(200)
    assert abs(page.locator(".cutegen-panel").bounding_box()["width"] - WIDTH) < 3


@pytest.mark.slow
def test_all_of_a_narrow_panel_is_within_reach(browser_page: Any, server: Any, artefacts: Path) -> None:
    page = browser_page
    (server.root / "beside.txt").write_text("beside\n")
    write_notebook(server.root / "narrow.ipynb", SETUP)
    open_notebook(page, server.lab("narrow.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel").wait_for(timeout=2 * STEP_MS)
    page.locator(".cg-at-versions button[data-version='2']").click()
    page.locator(".cg-at-versions button[data-version='2'][aria-current]").wait_for(timeout=STEP_MS)
    click(page, "Profile")
    wait_status(page, "v2: ")
    page.locator(".cg-profile tbody tr").first.wait_for()
    rows = "rows => [...new Set(rows.map((row) => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0)))]"
    assert page.locator(".cg-diff tr").evaluate_all(rows) == [6]  # old and new side by side
    make_narrow(page)
    assert page.locator(".cg-diff tr").evaluate_all(rows) == [3]
    code = page.locator(".cg-diff td.cg-code").first.bounding_box()
    assert code["width"] > WIDTH - 140
    taken = page.locator(".cg-diff tbody", has=page.locator(".cg-hunk")).first.locator("td.cg-sign").all_inner_texts()
    signs = [text[0] for text in taken]
    assert signs == sorted(signs, key="−+".index) and len(set(signs)) == 2  # the old lines, then the new ones
    page.set_viewport_size({"width": 1500, "height": 3400})  # all of it in the pictures
    page.locator(".cg-keys summary").click()
    assert page.locator(".cg-keys tr").count() == 6
    assert len(set(page.evaluate(SECTIONS))) == 1  # one below the other
    for name, chosen in (("light", "JupyterLab Light"), ("dark", "JupyterLab Dark")):
        theme(page, chosen)
        page.locator(".cutegen-panel").screenshot(path=artefacts / f"narrow_{name}.png")
        assert page.evaluate(CUT) == [] and page.evaluate(OVERLAPS) == []
        assert serious_violations(page, ".cutegen-panel") == []


def test_a_step_is_about_the_version_that_was_just_selected(browser_page: Any, server: Any) -> None:
    """Both clicks come before the kernel has answered the first one; a decision waits until its diff is shown."""
    page = browser_page
    write_notebook(server.root / "selected.ipynb", SETUP)
    open_notebook(page, server.lab("selected.ipynb"))
    run_all(page)
    page.locator(".cg-at-versions button[data-version='3']").wait_for(timeout=2 * STEP_MS)
    for number in (1, 2):
        other = 3 - number
        page.locator(f".cg-at-versions button[data-version='{other}']").click()
        page.get_by_role("heading", name=f"Diff: v{other} against").wait_for(timeout=STEP_MS)
        found = page.evaluate(BOTH_CLICKS, number)
        assert found == {"selected": [f"v{number}"], "decides": "true"}
        wait_status(page, f"v{number}: ")
        page.get_by_role("heading", name=f"Diff: v{number} against").wait_for(timeout=STEP_MS)
        assert page.locator(".cg-version[aria-current] strong").all_inner_texts() == [f"v{number}"]
