"""A figure is described once: its static form shows the traces, marks and texts of the live one, at the same places."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly import graph_objects as go

from workbench.views.figures.axes import Axis
from workbench.views.figures.describe import Bar, make_cells, make_figure, share_labels, show, show_bars
from workbench.views.figures.static import draw_static
from workbench.views.figures.style import KINDS, MARKS, mark_of
from workbench.views.figures.svg import PATHS, draw_mark

SVG = "{http://www.w3.org/2000/svg}"


def draw(*traces: Any, **options: Any) -> ET.Element:
    return ET.fromstring(draw_static(make_figure("title & <more>", traces, height=200, **options)))


def texts(root: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


@given(st.lists(st.tuples(st.floats(1.0, 1e9), st.floats(1.0, 1e9)), min_size=2, max_size=20, unique=True))
def test_marks_stand_at_their_logarithms(points: list[tuple[float, float]]) -> None:
    marks = go.Scatter(
        mode="markers",
        x=[x for x, _ in points],
        y=[y for _, y in points],
        hovertext=[str(n) for n in range(len(points))],
        marker={"color": "#2b83c6", "size": 8},
    )
    drawn = draw(marks, xaxis={"type": "log", "range": [0, 9]}, yaxis={"type": "log", "range": [0, 9]})
    circles = [(float(one.get("cx", 0)), float(one.get("cy", 0))) for one in drawn.iter(f"{SVG}circle")]
    assert len(circles) == len(points)
    for (x, y), (right, down) in zip(points, circles, strict=True):
        for (a, b), (c, d) in zip(points, circles, strict=True):
            assert (x <= a) == (right <= c) or abs(right - c) < 0.11
            assert (y <= b) == (down >= d) or abs(down - d) < 0.11


def test_every_mark_and_dash_is_drawn_in_its_own_way() -> None:
    names = {*MARKS, *PATHS, *(mark_of(kind, one) for kind in ("measured", "modelled") for one in (True, False))}
    drawn = {name: draw_mark(name, (0.0, 0.0), 10, "#2b83c6") for name in names}
    assert len(set(drawn.values())) == len(names)
    lines = [go.Scatter(mode="lines", x=[0, 1], y=[0, 1], line={"color": "#2b83c6", "dash": dash}) for dash in KINDS]
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', ET.tostring(draw(*lines), encoding="unicode"))
    assert len(set(dashes)) == len(KINDS) - 1  # the first is solid


def test_bars_are_as_long_as_they_say() -> None:
    shown = show_bars("b", [Bar("half", 0.5, "50 %"), Bar("<whole>", 1.0, "100 %")], head=("a", "b"), full=1.0)
    half, whole = (float(one.get("width", 0)) for one in ET.fromstring(shown.svg).iter(f"{SVG}rect"))
    assert half == pytest.approx(whole / 2, abs=0.1) and "&lt;whole&gt;" in shown.svg
    assert shown.plotly is not None and shown.plotly["data"][0]["x"] == [0.5, 1.0]
    assert "template" not in shown.plotly["layout"]
    width = float(ET.fromstring(shown.svg).get("width", 0))
    ends = [float(one.get("x", 0)) + 6.5 * len(one.text or "") for one in ET.fromstring(shown.svg).iter(f"{SVG}text")]
    assert max(ends) <= width  # what stands at the end of a whole bar is not cut


def test_numbers_stand_on_their_cells_though_names_are_numbers() -> None:
    scale = ((0, "#ffffff"), (1, "#000000"))
    cells = make_cells((["4", "2"], ["8"]), [[0.0, None]], ([["a", ""]], [["tip", ""]]), scale, showscale=False)
    category = {"type": "category"}
    drawn = draw(*cells, xaxis=category, yaxis=category)
    (cell,) = drawn.iter(f"{SVG}rect")
    written = next(node for node in drawn.iter(f"{SVG}text") if node.text == "a")
    left, wide = float(cell.get("x", 0)), float(cell.get("width", 0))
    assert left + wide / 2 == pytest.approx(float(written.get("x", 0)), abs=0.6) and written.get("fill") == "#000000"
    assert texts(drawn).count("4") == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12))
def test_each_point_is_named_once(places: list[tuple[float, float]]) -> None:
    names = [f"v{n}" for n in range(len(places))]
    labels = share_labels(places, names)
    said = [name for label in labels for name in label.partition(" and ")[0].split(", ") if name]
    more = sum(int(label.partition(" and ")[2].split()[0]) for label in labels if " and " in label)
    assert len(set(said)) == len(said) and set(said) <= set(names) and len(said) + more == len(names)
    assert all(len(label) < 40 for label in labels)


def test_texts_are_those_of_the_figure_and_escaped() -> None:
    lines = [go.Scatter(mode="lines", name=name, x=[1, 2], y=[1, 2], line={"color": "#2b83c6"}) for name in "ab"]
    drawn = draw(*lines, xaxis={"title": {"text": "seconds"}, "range": [0, 4]}, yaxis={"ticksuffix": "J"})
    said = texts(drawn)
    assert {"title & <more>", "seconds", "a", "b", "0", "4"} <= set(said) and any(one.endswith("J") for one in said)
    one = make_figure("t", lines[:1], height=100)
    assert not one.layout.showlegend and "a" not in texts(ET.fromstring(draw_static(one)))
    assert "numbers" in show(one, "text", "<table></table>").html and "numbers" not in show(one, "text").html


@pytest.mark.parametrize(
    ("spec", "ends", "said"),
    [
        ({"type": "log", "range": [11, 15], "tickformat": "~s"}, (0, 600), ["100G", "1T", "10T", "100T", "1P"]),
        ({"range": [0, 1], "tickformat": ".0%"}, (0, 600), ["0%", "20%", "40%", "60%", "80%", "100%"]),
        (
            {"range": [0, 4e-4], "tickformat": "~s", "ticksuffix": "s"},
            (0, 300),
            ["0s", "100 µs", "200 µs", "300 µs", "400 µs"],
        ),
    ],
)
def test_numbers_at_an_axis(spec: dict[str, Any], ends: tuple[float, float], said: list[str]) -> None:
    assert [text for _, text in Axis("xaxis", spec, [], ends).ticks()] == said
