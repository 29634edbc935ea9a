"""How figures look: the colours, marks and dashes that all of them share. Mid tones, readable on light and dark."""

from __future__ import annotations

WIDTH = 700  # pixels of a static picture
LETTER = 6.1  # pixels of a character, about
COLOURS = ("#2b83c6", "#ad6c08", "#3f8f43", "#8064a2", "#2a9d96", "#8c6d5a", "#c2538f", "#6b7a1e")
WRONG = "#c0504d"  # red is for nothing else
MODELLED, ROOF, MEASURED, SCREENED = COLOURS[:4]
QUIET = "#7a7a7a"  # of text and grid, where the page does not give its own
GRID = "rgba(128,128,128,.25)"
CLEAR = "rgba(0,0,0,0)"
# The colours of cells from the best to the worst. Cells are opaque, so their numbers can be read on light and dark.
PALE, SLOW = "#c9c9c9", "#b5651d"
MARKS = ("circle", "square", "diamond", "triangle-up")
DASHES = {"solid": "", "dash": "9 5", "dot": "2 4", "dashdot": "9 4 2 4", "longdash": "14 5"}  # curves differ by more
KINDS = tuple(DASHES)  # than their colour: the names in plotly, and the strokes in SVG
LOG = {"type": "log", "nticks": 5, "minor": {"ticks": "outside", "ticklen": 3, "showgrid": False}}
RATES = {**LOG, "tickformat": "~s"}  # 900G, 1T: with exponentformat alone, ticks between powers of ten read 0.9 x 10^12
INTENSITIES = {**LOG, "tickformat": "~g"}  # 0.5, 100


def colour_of(number: int) -> str:
    """The colour of the curve, level or kernel with this number."""
    return COLOURS[number % len(COLOURS)]


def dash_of(number: int) -> str:
    """The dash of the curve with this number."""
    return KINDS[number % len(KINDS)]


def mark_of(provenance: str, accepted: bool) -> str:
    """The symbol of a version: a square if it was measured, a circle if modelled; filled if it was accepted."""
    return ("square" if provenance == "measured" else "circle") + ("" if accepted else "-open")


def shorten(words: str, length: int) -> str:
    """The text, shortened to at most `length` characters by cutting out the middle."""
    return words if len(words) <= length else f"{words[: length * 2 // 3]}…{words[-(length // 3 - 1) :]}"
