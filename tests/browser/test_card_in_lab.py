"""The card of a problem in JupyterLab, light and dark: it is read from left to right and nothing is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import serious_violations
from lab import open_notebook, run_all, theme, write_notebook

OWN = Path(__file__).parent.parent / "problems" / "own"
CARD = ".jp-OutputArea-output .cutegen-card"


@pytest.mark.slow
def test_the_card_can_be_read_in_both_themes(server: Any, browser_page: Any, artefacts: Path) -> None:
    page = browser_page
    write_notebook(
        server.root / "card.ipynb",
        "%load_ext workbench\n%cutegen problem " + str(OWN / "swiglu_fused.py") + " --executor emulator",
    )
    open_notebook(page, server.lab("card.ipynb"))
    run_all(page)
    card = page.locator(CARD).first
    card.wait_for(timeout=90_000)
    for name in ("JupyterLab Light", "JupyterLab Dark"):
        theme(page, name)
        card.screenshot(path=str(artefacts / f"problem-card-{name.split()[-1].lower()}.png"))
        assert not serious_violations(page, CARD)
    cells = card.locator("td").all()
    assert all(cell.evaluate("cell => getComputedStyle(cell).textAlign") == "left" for cell in cells)
