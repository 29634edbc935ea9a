"""A page that is too slow for anywidget's limit of 2 s: the panel hears the kernel all the same."""

from __future__ import annotations

from typing import Any

from lab import STEP_MS, open_notebook, run_all, version_status, wait_status, write_notebook

# The limit has passed before any module can be loaded, as on a page that is busy for 2 s.
SLOW = """AbortSignal.timeout = () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 0);
    return controller.signal;
}"""
SETUP = """
from workbench import Session
from workbench.views.notebook.panel import Panel
session = Session.create("softmax", executor="replay")
Panel(session)
"""


def test_a_panel_whose_module_came_late_hears_the_kernel(browser_page: Any, server: Any) -> None:
    page = browser_page
    page.add_init_script(SLOW)
    write_notebook(server.root / "slow.ipynb", SETUP)
    open_notebook(page, server.lab("slow.ipynb"))
    run_all(page)
    wait_status(page, "ready")
    page.get_by_role("button", name="Generate", exact=True).click()
    version_status(page, 1, "pending")
    page.get_by_role("button", name="Accept v1", exact=True).click(timeout=STEP_MS)
    version_status(page, 1, "accepted")
