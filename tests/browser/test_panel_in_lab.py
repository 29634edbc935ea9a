"""The panel driven in JupyterLab: generate, test, accept a hunk, reject, dark theme, reload, reopen with no kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import serious_violations
from lab import (
    STEP_MS,
    click,
    is_light,
    open_notebook,
    open_without_kernel,
    restart,
    run_all,
    save,
    theme,
    version_status,
    wait_status,
    write_notebook,
)
from labserver import TOKEN, api

HERE = Path(__file__).parent
SETUP = f"""
from pathlib import Path
from workbench import Session
from workbench.views.notebook.panel import Panel
names = ("relu_first.py", "relu_second.py", "relu_wrong.py")
sources = [Path({str(HERE / "candidates")!r}, name).read_text() for name in names]
session = Session.create("relu", executor="emulator")
titles = ("one element per thread", "128 threads", "drop the clamp")
panel = Panel(session, by="scripted", sources=sources, titles=titles)
display(panel)
own = {{"data": [{{"y": [1, 2]}}], "layout": {{"title": {{"text": "my own"}}}}}}
display({{"application/vnd.plotly.v1+json": own}}, raw=True)
"""


CUT = """() => {
    const panel = document.querySelector('.cutegen-panel');
    const right = panel.getBoundingClientRect().right;
    return [...panel.querySelectorAll('.cg-tools button, .cg-tools input')].filter(
        (one) => one.checkVisibility() && one.getBoundingClientRect().right > right).map((one) => one.textContent);
}"""


def accept_first(page: Any) -> None:
    click(page, "Generate")
    version_status(page, 1, "pending")
    wait_status(page, "v1 correct")
    click(page, "Test")
    wait_status(page, "v1 correct")
    click(page, "Accept v1")
    version_status(page, 1, "accepted")
    click(page, "Undo v1")
    version_status(page, 1, "pending")
    click(page, "Accept v1")
    version_status(page, 1, "accepted")


def accept_one_hunk(page: Any) -> None:
    click(page, "Generate")
    wait_status(page, "v2 correct")
    boxes = page.locator(".cutegen-panel input[data-hunk]")
    assert boxes.count() == 2
    page.get_by_label("Take hunk 1").uncheck()
    page.get_by_label("Take hunk 2").uncheck()
    assert page.get_by_role("button", name="Accept 0 of 2 hunks").get_attribute("aria-disabled") == "true"
    page.get_by_label("Take hunk 2").check()
    page.get_by_label("Reason for the decision").fill("keep 256 threads")
    click(page, "Accept 1 of 2 hunks")
    page.locator(".cutegen-panel[aria-busy=true]").wait_for(timeout=1_000)
    assert page.get_by_role("button", name="Run", exact=True).get_attribute("aria-disabled") == "true"
    version_status(page, 3, "accepted")
    version_status(page, 2, "accepted-in-part")


def reject_wrong(page: Any) -> None:
    click(page, "Generate")
    wait_status(page, "wrong result")
    page.get_by_label("Reason for the decision").fill("negative values pass through")
    click(page, "Reject v4")
    version_status(page, 4, "rejected")
    page.wait_for_function("() => document.activeElement?.textContent === 'Generate'")


def test_panel_through_the_loop(browser_page: Any, server: Any, artefacts: Path) -> None:
    page = browser_page
    write_notebook(server.root / "panel.ipynb", SETUP)
    open_notebook(page, server.lab("panel.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel").wait_for(timeout=STEP_MS)
    accept_first(page)
    accept_one_hunk(page)
    reject_wrong(page)
    click(page, "Profile")
    wait_status(page, "limited by")
    page.locator(".cg-profile tbody tr").first.wait_for()
    page.locator(".cg-roofline svg").wait_for()
    page.locator(".js-plotly-plot").first.wait_for(state="attached")
    assert not page.locator(".js-plotly-plot").first.is_visible()  # the record's roofline, for readers without a kernel
    assert page.locator(".js-plotly-plot", has_text="my own").is_visible()
    assert page.locator(".js-plotly-plot").count() == 2

    assert is_light(page)
    shoot(page, artefacts / "panel_light.png")
    assert serious_violations(page, ".cutegen-panel") == []
    theme(page, "JupyterLab Dark")
    shoot(page, artefacts / "panel_dark.png")
    assert serious_violations(page, ".cutegen-panel") == []
    theme(page, "JupyterLab Dark High Contrast")
    assert serious_violations(page, ".cutegen-panel") == []
    theme(page, "JupyterLab Light")
    size = page.viewport_size
    page.set_viewport_size({"width": 700, "height": 1100})
    assert page.evaluate(CUT) == []
    page.set_viewport_size(size)

    save(page)
    open_notebook(page, server.lab("panel.ipynb", ""))
    page.locator(".cutegen-panel button[data-version='4'].cg-rejected").wait_for(timeout=STEP_MS)
    saved(server.root / "panel.ipynb")


@pytest.mark.slow
def test_planner_writes_and_stop_ends_a_run(browser_page: Any, server: Any) -> None:
    page = browser_page
    write_notebook(server.root / "planner.ipynb", "%load_ext workbench\n%cutegen problem softmax", "%cutegen panel")
    open_notebook(page, server.lab("planner.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel").wait_for(timeout=STEP_MS)
    page.get_by_role("button", name="Generate", exact=True).focus()
    page.keyboard.press("Enter")
    version_status(page, 1, "pending")
    wait_status(page, "v1 correct")
    page.keyboard.press("a")  # in the notebook's command mode this would insert a cell
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2
    page.keyboard.press("Alt+Shift+A")
    version_status(page, 1, "accepted")
    page.get_by_label("Number of steps").fill("20")
    click(page, "Run")
    page.locator(".cutegen-panel[aria-busy=true]").wait_for()
    click(page, "Stop")
    page.locator(".cutegen-panel[aria-busy=false]").wait_for(timeout=5_000)
    wait_status(page, "stopped")
    open_another(page)
    restart(page)
    wait_status(page, ", then run this cell again")


@pytest.mark.slow
def test_pictures_for_the_readme(browser_page: Any, server: Any, artefacts: Path) -> None:
    """.github/images/panel-light.png and panel-dark.png are copies of what this writes."""
    page = browser_page
    begin = "%env CUTEGEN_LESSONS=off\n%load_ext workbench\n%cutegen problem matmul --executor emulator --arch sm_80"
    write_notebook(server.root / "readme.ipynb", begin, "%cutegen panel")
    open_notebook(page, server.lab("readme.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel").wait_for(timeout=STEP_MS)
    click(page, "Generate")
    wait_status(page, "v1 correct")
    click(page, "Accept v1")
    version_status(page, 1, "accepted")
    click(page, "Generate")
    wait_status(page, "v2 correct")
    click(page, "Profile")
    wait_status(page, "limited by")
    page.locator(".cg-profile tbody tr").first.wait_for()
    assert "such changes" not in page.locator(".cg-advised").inner_text()
    for name, chosen in (("light", "JupyterLab Light"), ("dark", "JupyterLab Dark")):
        theme(page, chosen)
        shoot(page, artefacts / f"panel-{name}.png")


def open_another(page: Any) -> None:
    """Another problem closes the session: its panel is read-only, without an error, until it is opened again."""
    page.locator(".jp-Notebook .jp-Cell").first.locator(".cm-content").fill("%cutegen problem relu")
    page.locator(".jp-Notebook .jp-Cell").first.locator(".cm-content").press("Control+Enter")
    wait_status(page, "This session is closed")
    assert page.locator(".cg-status.cg-error").count() == 0
    again = page.get_by_role("button", name="Open again")
    assert page.get_by_role("button", name="Generate", exact=True).get_attribute("aria-disabled") == "true"
    again.click()
    again.wait_for(state="hidden", timeout=STEP_MS)
    page.locator(".cutegen-panel button[data-version='1'].cg-accepted").wait_for()
    assert page.get_by_role("button", name="Generate", exact=True).get_attribute("aria-disabled") is None


def shoot(page: Any, path: Path) -> None:
    panel = page.locator(".cutegen-panel")
    panel.scroll_into_view_if_needed()
    panel.screenshot(path=path)


def saved(path: Path) -> None:
    """The file holds the record, no widget state, and stays small."""
    text = path.read_text()
    assert "keep 256 threads" in text and "negative values pass through" in text
    assert "application/vnd.jupyter.widget-state+json" not in text
    assert len(text) < 300_000


@pytest.mark.parametrize("trusted", [pytest.param(True, marks=pytest.mark.slow), False])
def test_saved_notebook_without_a_kernel(browser_page: Any, server: Any, artefacts: Path, trusted: bool) -> None:
    assert (server.root / "panel.ipynb").exists(), "runs after test_panel_through_the_loop"
    page = browser_page
    text = (server.root / "panel.ipynb").read_text()
    name = f"reopened_{trusted}.ipynb"
    (server.root / name).write_text(text if trusted else text.replace('"Python 3', '"Some Python 3'))
    open_without_kernel(page, f"{server.url}/lab?reset&token={TOKEN}", name)
    record = page.locator(".jp-OutputArea-output details", has_text="v3 accepted (hunk 2): keep 256 threads")
    record.wait_for(timeout=STEP_MS)
    assert (
        page.locator(".jp-OutputArea-output details", has_text="v4 rejected: negative values pass through").count() == 1
    )
    assert record.locator("td", has_text="one 4-byte load per thread").count() >= 1
    page.locator(".js-plotly-plot .main-svg, .jp-RenderedSVG img, .jp-RenderedSVG svg").first.wait_for(timeout=STEP_MS)
    assert api(server, "kernels") == []
    page.screenshot(path=artefacts / f"{name}.png")


DEEP = """
from workbench import Session
from workbench.views.notebook.panel import Panel
session = Session.create("softmax", executor="replay")
source = session.generate().proposal.candidate.source
for number in range(1, 12):
    session.edit(f"{source}# {number}\\n", title="softmax(x).kept().threads_per_row(512)", parent=number, test=False)
Panel(session)
"""
CUT_ROWS = """() => [...document.querySelectorAll('.cg-at-versions .cg-version')].filter(
    row => row.scrollWidth > row.clientWidth || row.scrollWidth > row.parentElement.clientWidth).length"""


@pytest.mark.slow
def test_long_words_deep_in_the_tree_are_in_view(browser_page: Any, server: Any) -> None:
    page = browser_page
    write_notebook(server.root / "deep.ipynb", DEEP)
    open_notebook(page, server.lab("deep.ipynb"))
    run_all(page)
    page.locator(".cg-at-versions button[data-version='12']").wait_for(timeout=STEP_MS)
    for width in (1500, 1000, 500):
        page.set_viewport_size({"width": width, "height": 2000})
        page.wait_for_timeout(300)
        assert page.evaluate(CUT_ROWS) == 0, width


def test_a_step_with_the_same_answer_as_before_leaves_the_panel_ready(browser_page: Any, server: Any) -> None:
    page = browser_page
    cell = "%load_ext workbench\n%cutegen problem softmax --executor replay\n%cutegen generate\n%cutegen panel"
    write_notebook(server.root / "again.ipynb", cell)
    open_notebook(page, server.lab("again.ipynb"))
    run_all(page)
    ready = page.locator(".cutegen-panel[aria-busy=false]")
    ready.wait_for(timeout=STEP_MS)
    page.get_by_label("Number of steps").fill("0")
    page.get_by_label("Trials of the search").fill("-3")
    for name, said in (("Profile", "v1"), ("Run", "from 1 to 50"), ("Search", "from 1 to 1000")):
        for _ in range(3):
            click(page, name)
            ready.wait_for(timeout=STEP_MS)
            wait_status(page, said)
            assert page.get_by_role("button", name="Generate", exact=True).get_attribute("aria-disabled") is None


WAITING = """
import threading
from workbench import Session
from workbench.views.notebook.panel import Panel
session = Session.create("softmax", executor="replay")
session.accept(session.generate().number)
panel, slow = Panel(session), threading.Event()
panel.controller._steps.submit(slow.wait, 60)  # the thread of the steps is slow to begin
panel
"""
GO_ON = """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestExecute(
    {code: 'slow.set(); panel.controller._steps.submit(int).result()', silent: true}).done.then(() => null)"""


@pytest.mark.few(1)
@pytest.mark.parametrize("by_key", [False, True])
def test_stop_ends_a_step_that_has_not_begun(browser_page: Any, server: Any, by_key: bool) -> None:
    page = browser_page
    write_notebook(server.root / f"waiting_{by_key}.ipynb", WAITING)
    open_notebook(page, server.lab(f"waiting_{by_key}.ipynb"))
    run_all(page)
    page.locator(".cutegen-panel[aria-busy=false]").wait_for(timeout=STEP_MS)
    click(page, "Run")
    wait_status(page, "run …")
    if by_key:
        page.locator(".cutegen-panel .cg-at-versions h3").focus()
        page.keyboard.press("Alt+Shift+S")
    else:
        click(page, "Stop")
    wait_status(page, "stopping; everything finished so far is kept")
    page.evaluate(GO_ON)
    wait_status(page, "run stopped; everything finished so far is kept")
    page.locator(".cutegen-panel[aria-busy=false]").wait_for(timeout=STEP_MS)
    assert page.locator(".cg-at-versions button[data-version]").count() == 1
    click(page, "Generate")
    version_status(page, 2, "pending")
