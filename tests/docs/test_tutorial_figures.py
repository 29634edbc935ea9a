"""Figures in the prose of a tutorial are those of its outputs; its exercises come unsolved, with the solution below."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.views.notebook.exercises import EXERCISES
from workbench.views.text.mime_bundle import PLOTLY

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
SECONDS = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "ns": 1e-9}
FIGURE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)\s?(µs|us|ms|ns|%|x\b|TB/s|TFLOP/s)")
# figures that no output of the same notebook has, with where they come from
ELSEWHERE = {
    "01": {"860 ns"},  # computed in the sentence
    "02": {"64 x"},  # a product in the sentence
    "04": {"8.2 ms", "43 %", "5.075 ms"},  # computed in the sentences; recorded in the landscape of rms_norm
    "05": {
        "1235 µs",
        "36 %",
        "1198 µs",
        "518 µs",
        "86 %",
        "10.2 ms",
        "10.8 ms",
        "9.29 ms",
    },  # measured on one H200 when it was recorded
    "07": {"989.4 TFLOP/s"},  # data sheet
}


def load_cells(path: Path) -> list[dict[str, object]]:
    return json.loads(path.read_text())["cells"]


def read_source(cell: dict[str, object]) -> str:
    return "".join(cell["source"])


def read_outputs(cell: dict[str, object]) -> str:
    found = [one.get("text", one.get("data", {}).get("text/plain", "")) for one in cell.get("outputs", [])]
    return "\n".join("".join(one) for one in found)


def list_figures(text: str) -> Iterator[tuple[str, float, float, str]]:
    """(text, value, half a unit of the last digit, unit); times in seconds."""
    for found in FIGURE.finditer(text):
        digits, unit = found[1].replace(",", ""), found[2]
        half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
        scale = SECONDS.get(unit, 1.0)
        yield found[0], float(digits) * scale, half * scale, "s" if unit in SECONDS else unit


def find_strangers(cells: list[dict[str, object]]) -> set[str]:
    """Figures of the prose that stand in no code and no output."""
    shown = "\n".join(read_source(cell) + "\n" + read_outputs(cell) for cell in cells if cell["cell_type"] == "code")
    known = [(value, unit) for _, value, _, unit in list_figures(shown)]
    plain = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", shown)]
    out = set()
    for cell in (cell for cell in cells if cell["cell_type"] == "markdown"):
        for text, value, half, unit in list_figures(read_source(cell)):
            reach = half * (1 + 1e-6)
            scale = next((SECONDS[name] for name in SECONDS if text.endswith(name)), 1.0)
            if not any(unit == other and abs(value - at) <= reach for at, other in known) and not any(
                abs(value / scale - number) <= reach / scale for number in plain
            ):
                out.add(text)
    return out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_in_prose_are_those_of_the_outputs(path: Path) -> None:
    assert find_strangers(load_cells(path)) - ELSEWHERE.get(path.stem[:2], set()) == set()


def test_a_figure_that_no_output_has_is_found() -> None:
    code = {"cell_type": "code", "source": ["run()"], "outputs": [{"text": ["time 4.237 ms, 38.4% of it"]}]}
    prose = {"cell_type": "markdown", "source": ["It takes 4.24 ms, 4237 µs or 38 % of 9.9 ms."]}
    assert find_strangers([code, prose]) == {"9.9 ms"}


VERDICT = re.compile(r"time at case full[^:]*: ([\d.]+) (\S+) \((modelled|measured)[^)]*?(?:limited by ([\w ]+))?\)")
BOUND = re.compile(r"bound [\d.]+ \S+ \((\w+)\)")
RATE = re.compile(r"^v\d+ .*?([\d.]+) ([TGMk]?)FLOP/s", re.M)
AMOUNTS = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}


def list_plots(cells: list[dict[str, object]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(all text down to the plot, the text of its output, the plot) of each live plot."""
    above = ""
    for cell in cells:
        for one in cell.get("outputs", []):
            text = "".join(one.get("text", one.get("data", {}).get("text/plain", "")))
            above += f"\n{text}"
            if PLOTLY in one.get("data", {}):
                yield above, text, one["data"][PLOTLY]


def check_parts(above: str, plot: dict[str, Any]) -> None:
    """The parts of a time are those of the verdict above: the same limit, the same time, which they add up to."""
    (bars,) = plot["data"]
    shares = dict(zip(bars["y"], bars["x"], strict=True))
    largest = max((name for name in shares if name != "other"), key=lambda name: shares[name])
    assert shares[largest] + shares["other"] == pytest.approx(1.0, rel=0.01)
    assert re.findall(r"limited by ([\w ]+?) \(modelled\)", above)[-1:] in ([], [largest])
    number, unit, provenance, limit = VERDICT.findall(above)[-1]
    ((_, whole, _, _),) = list_figures(plot["layout"]["title"]["text"].partition(" go ")[0])
    if provenance == "modelled":
        assert whole == pytest.approx(float(number) * SECONDS[unit], rel=0.01) and limit == largest


def check_points(above: str, text: str, plot: dict[str, Any]) -> None:
    """The points of a roofline have the rates of the table, and it names the limit of the verdict's bound."""
    found = [y for trace in plot["data"] if trace.get("name", "").startswith("version") for y in trace["y"]]
    said = [float(number) * AMOUNTS[prefix] for number, prefix in RATE.findall(text)]
    assert sorted(found) == pytest.approx(sorted(said), rel=0.01) and said
    limits = BOUND.findall(above)
    assert not limits or f"bound by {limits[-1]}" in plot["layout"]["title"]["text"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_plots_agree_with_the_verdict_above_them(path: Path) -> None:
    checked = 0
    for above, text, plot in list_plots(load_cells(path)):
        title = plot["layout"].get("title", {}).get("text", "")
        if title.startswith("Where ") and " go (modelled)" in title:
            check_parts(above, plot)
        elif title.startswith("Roofline, "):
            check_points(above, text, plot)
        else:
            continue
        checked += 1
    assert checked or path.stem[:2] not in ("02", "03", "04", "06", "07", "08")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_exercises_come_unsolved_with_their_solution_folded_below(path: Path) -> None:
    cells = load_cells(path)
    for number, cell in enumerate(cells):
        for name in re.findall(r'^check\("([a-z-]+)"', read_source(cell), re.M) if cell["cell_type"] == "code" else ():
            assert f"{name}: not yet" in read_outputs(cell)
            below = next(
                (read_source(one) for one in cells[number + 1 : number + 4] if "<details>" in read_source(one)), ""
            )
            assert f"<summary>Solution of {name}</summary>" in below
            assert EXERCISES[name].solution in below
