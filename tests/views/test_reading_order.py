"""The picture of reads, and sliders that draw it again."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from workbench.graphs.batches import Policy
from workbench.graphs.communities import relabel
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel
from workbench.views.notebook.knobs import Knobs
from workbench.views.plots.reading_order import DOTS, draw_reads, look_at_batches
from workbench.views.text.mime_bundle import PLOTLY

CACHE = CacheModel(capacity_bytes=32 << 10)


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = stochastic_block_model(2000, 20, 10, given=Nodes(features=32))
    return relabel(made, "given").graph


def heights(svg: str) -> np.ndarray:
    return np.array([float(up) for up in re.findall(r"M[\d.]+ ([\d.]+)h0", svg)])


def test_dots_lie_where_rows_are_read(graph: Graph) -> None:
    """With structure the reads of a batch lie in a few bands; at random they cover all rows."""
    spread = []
    for mix, p in ((1.0, 0.5), (0.0, 1.0)):
        shown = draw_reads(graph, Policy(mix=mix, p=p, batch=64, fanouts=(5, 5)), CACHE)
        ET.fromstring(shown.svg)
        dots = heights(shown.svg)
        assert DOTS / 2 <= len(dots) <= 1.6 * DOTS
        first = dots[: len(dots) // 4]
        spread.append(len(np.unique(np.round(first / 9))))
    assert spread[0] >= 18 and spread[1] <= 6


def test_figures_are_those_of_the_batches(graph: Graph) -> None:
    policy = Policy(mix=0.25, p=0.9, batch=64, fanouts=(5, 5))
    _, found = look_at_batches(graph, policy, CACHE)
    shown = draw_reads(graph, policy, CACHE)
    for written in (f"{found.unique_rows:.0f} of 2000", f"{found.hit_rate:.1%}", f"{found.label_bits:.2f} bits"):
        assert written in shown.text and f">{written}</text>" in shown.svg


def test_a_slider_draws_the_picture_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    class Handle:
        def update(self, picture: object, raw: bool) -> None:
            shown.append(picture)

    def display(what: object, **options: object) -> Handle:
        shown.append(what)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    knobs = Knobs(graph, Policy(batch=64, fanouts=(5, 5)), CACHE)
    knobs._ipython_display_()
    widget, picture = shown
    assert "running kernel" in widget["text/plain"] and "application/vnd.jupyter.widget-view+json" in widget
    knobs.mix.value, knobs.p.value = 0.0, 1.0
    *_, static, live = shown[2:]
    assert len(shown) == 6 and "mix 1, p 0.5" in str(picture)
    assert all("mix 0, p 1" in one["text/plain"] for one in (static, live)) and PLOTLY not in static and live[PLOTLY]
