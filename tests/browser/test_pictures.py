"""Pictures as plotly draws them in a browser: what stands at the ticks of a short axis, and numbers that can be read on
their cells, on light and on dark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly
import pytest
from lab import open_without_kernel, theme
from labserver import ROOT, TOKEN, Server

from workbench import landscapes
from workbench.views.figures import colours
from workbench.views.plots.landscape import heat_map
from workbench.views.plots.level_roofline import Point, draw_levels

SCRIPT = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
TUTORIAL = "09_why_is_it_slow.ipynb"
GROUNDS = {"light": "#ffffff", "dark": "#111111"}


@pytest.fixture(scope="module")
def sheet(browser: Any) -> Iterator[Any]:
    """A page with plotly, whose script takes a second to read: one for all pictures."""
    page = browser.new_page(viewport={"width": 960, "height": 640})
    page.set_content('<body style="margin:0"></body>')
    page.add_script_tag(path=str(SCRIPT))
    yield page
    page.close()


def drawn(page: Any, artefacts: Path, figure: dict[str, Any], name: str, ground: str) -> Any:
    """The page with nothing but the figure on that ground, kept as a picture too."""
    page.evaluate(
        "([figure, ground]) => { document.body.style.background = ground;"
        " document.body.innerHTML = '<div id=figure></div>';"
        " return Plotly.newPlot('figure', figure.data, figure.layout).then(() => null); }",
        [json.loads(json.dumps(figure)), GROUNDS[ground]],
    )
    page.screenshot(path=str(artefacts / f"{name}-{ground}.png"))
    return page


@pytest.mark.few(1)
@pytest.mark.parametrize("ground", GROUNDS)
def test_ticks_of_a_short_axis_are_plain_amounts(sheet: Any, artefacts: Path, ground: str) -> None:
    points = [Point("product", "DRAM", 480.0, 6.2e14), Point("product", "L2", 300.0, 6.2e14)]
    figure = draw_levels(
        "Roofline",
        points,
        [("DRAM", 4.2e12, "measured"), ("L2", 8e12, "measured")],
        [("tensor cores", 9.89e14, "data sheet")],
    ).plotly
    assert figure is not None
    figure["layout"]["yaxis"]["range"], figure["layout"]["xaxis"]["range"] = [14.4, 15.2], [2.0, 2.9]
    page = drawn(sheet, artefacts, figure, "roofline", ground)
    rates, intensities = (
        page.eval_on_selector_all(f".{axis}tick text", "nodes => nodes.map(node => node.textContent)") for axis in "yx"
    )
    assert {"600T", "1P"} <= set(rates) and all(
        "×" not in said and "<" not in said and said[-1] in "TP" for said in rates
    ), rates
    assert "200" in intensities and all(said.isdigit() for said in intensities), intensities


@pytest.mark.parametrize("ground", GROUNDS)
def test_numbers_on_cells_can_be_read(sheet: Any, artefacts: Path, ground: str) -> None:
    shown = heat_map(landscapes.landscapes()["matmul_bf16_4096"], "tile", "cluster")
    figure = shown.plotly
    assert figure is not None
    page = drawn(sheet, artefacts, figure, "heat-map", ground)
    written = page.eval_on_selector_all(
        ".textpoint text", "nodes => nodes.map(node => [node.textContent, getComputedStyle(node).fill])"
    )
    cells = [value for line in figure["data"][0]["z"] for value in line if value is not None]
    assert len(written) == len(cells) and all(said.rstrip("*†").endswith("s") for said, _ in written)
    (_, full), (_, pale), (_, slow) = figure["data"][0]["colorscale"]
    assert min(cells) == 0 and max(cells) > 1  # from the fastest to more than twice its time
    for place, (_, ink) in zip(cells, written, strict=True):
        black = {"rgb(0, 0, 0)": "#000000", "rgb(255, 255, 255)": "#ffffff"}[ink]
        ground = colours.pick(((0.0, full), (0.5, pale), (1.0, slow)), place / 2)
        assert colours.contrast(black, ground) >= 4.5


def test_numbers_stand_on_cells_whose_names_are_numbers(sheet: Any, artefacts: Path) -> None:
    figure = heat_map(landscapes.landscapes()["matmul_bf16_4096"], "stages", "cluster").plotly
    assert figure is not None and all(name.isdigit() for name in figure["data"][0]["x"] if name != "not set")
    page = drawn(sheet, artefacts, figure, "stages", "light")
    plot = page.locator(".nsewdrag").bounding_box()
    boxes = [node.bounding_box() for node in page.locator(".textpoint text").all()]
    wide, high = plot["width"] / len(figure["data"][0]["x"]), plot["height"] / len(figure["data"][0]["y"])
    cells = [
        (
            int((box["x"] + box["width"] / 2 - plot["x"]) // wide),
            int((plot["y"] + plot["height"] - box["y"] - box["height"] / 2) // high),
        )
        for box in boxes
    ]
    assert sorted(cells) == sorted(
        (column, row)
        for row, line in enumerate(figure["data"][0]["z"])
        for column, value in enumerate(line)
        if value is not None
    )


@pytest.mark.parametrize("ground", GROUNDS)
def test_the_title_of_an_axis_stands_beside_its_names(sheet: Any, artefacts: Path, ground: str) -> None:
    figure = heat_map(landscapes.landscapes()["matmul_bf16_4096"], "tile", "schedule").plotly
    assert figure is not None and "cooperative" in figure["data"][0]["y"]
    page = drawn(sheet, artefacts, figure, "schedules", ground)
    title, plot = page.locator(".ytitle").bounding_box(), page.locator("#figure").bounding_box()
    below, above = page.locator(".xtitle").bounding_box(), page.locator(".gtitle").bounding_box()
    names, tiles = ([node.bounding_box() for node in page.locator(f".{axis}tick text").all()] for axis in "yx")
    cells = page.locator(".nsewdrag").bounding_box()
    assert title["x"] >= plot["x"] and all(title["x"] + title["width"] + 4 <= name["x"] for name in names), (
        title,
        names,
    )
    assert (
        all(tile["y"] + tile["height"] + 2 <= below["y"] for tile in tiles)
        and below["y"] + below["height"] <= plot["y"] + plot["height"]
    ), (below, tiles)
    assert above["y"] + above["height"] <= cells["y"], (above, cells)


@pytest.mark.parametrize("name", ["JupyterLab Light", "JupyterLab Dark"])
def test_the_bars_of_an_advice_are_seen_in_a_notebook_that_is_not_trusted(
    browser_page: Any, server: Server, artefacts: Path, name: str
) -> None:
    shutil.copy(ROOT / "notebooks" / TUTORIAL, server.root / TUTORIAL)
    open_without_kernel(browser_page, f"{server.url}/lab?reset&token={TOKEN}", TUTORIAL)
    theme(browser_page, name)
    assert not browser_page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.widgets.some(cell => cell.model.trusted)"
    )
    cell = browser_page.locator(".jp-CodeCell", has_text="%cutegen diagnose v1").first
    cell.scroll_into_view_if_needed()
    images = cell.locator(".jp-OutputArea img[alt^='the counters behind the advice']")
    images.first.wait_for()
    assert images.count() > 1 and images.evaluate_all(
        "all => all.every(one => one.complete && one.naturalWidth > 300 && one.naturalHeight > 20)"
    )
    assert "the counters behind the advice" not in cell.inner_text()
    images.first.scroll_into_view_if_needed()
    browser_page.screenshot(path=str(artefacts / f"untrusted-{name.split()[-1].lower()}.png"))
