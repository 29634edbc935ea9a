"""The sliders of mix and p in JupyterLab: moving one draws the live picture again; both themes can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
from axe import serious_violations
from lab import open_notebook, run_all, save, theme, write_notebook

from workbench.views.text.mime_bundle import PLOTLY

CELL = """
from workbench.graphs.batches import Policy
from workbench.graphs.communities import relabel
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.views.notebook.knobs import Knobs

graph = relabel(stochastic_block_model(2000, 20, 10, given=Nodes(features=32)), "given").graph
Knobs(graph, Policy(mix=1.0, p=0.5, batch=64, fanouts=(5, 5)))
"""
PICTURE = ".jp-OutputArea-output.js-plotly-plot"


def test_a_slider_draws_the_picture_again(server: Any, browser_page: Any, artefacts: Path) -> None:
    page = browser_page
    write_notebook(server.root / "knobs.ipynb", CELL)
    open_notebook(page, server.lab("knobs.ipynb"))
    run_all(page)
    page.locator(PICTURE, has_text="mix 1, p 0.5").wait_for(timeout=90_000)
    slider = page.locator(".jp-OutputArea-output .noUi-handle").first
    slider.focus()
    page.keyboard.press("Home")
    page.locator(PICTURE, has_text="mix 0, p 0.5").wait_for(timeout=30_000)
    assert page.locator(PICTURE).count() == 1
    for name in ("JupyterLab Light", "JupyterLab Dark"):
        theme(page, name)
        page.locator(PICTURE).screenshot(path=str(artefacts / f"knobs-{name.split()[-1].lower()}.png"))
        page.screenshot(path=str(artefacts / f"knobs-page-{name.split()[-1].lower()}.png"))
        assert not serious_violations(page, PICTURE)
    save(page)
    (cell,) = nbformat.read(server.root / "knobs.ipynb", as_version=4).cells
    (kept,) = (output.data for output in cell.outputs if PLOTLY in output.get("data", {}))
    assert "mix 0, p 0.5" in json.dumps(kept[PLOTLY]) and "mix 0, p 0.5" in "".join(kept["image/svg+xml"])
