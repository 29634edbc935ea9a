"""Draws where an output is wrong: a map of its elements as an image, for light and dark pages."""

from __future__ import annotations

import html
import itertools
import math

from workbench.records import Check, WrongValues
from workbench.views.figures.style import QUIET, WRONG
from workbench.views.figures.svg import as_image, draw_picture

CELL = 7  # pixels
LEVELS = 5  # shares that are told apart
STYLE = "font-family:var(--jp-ui-font-family,sans-serif);font-size:12px;color:var(--jp-ui-font-color1,#333)"


def draw_error_map(check: Check) -> str:
    """The map of a failed comparison with its sentence, and got beside expected at the worst element; "" if none."""
    wrong = check.wrong
    if wrong is None:
        return ""
    worst = ", ".join(map(str, check.worst_index))
    values = (
        f"<table style='{STYLE}'><tr><th>worst element</th><th>got</th><th>expected</th></tr>"
        f"<tr><td>[{worst}]</td><td>{check.worst_got:.6g}</td><td>{check.worst_expected:.6g}</td></tr></table>"
        if check.worst_got is not None and check.worst_expected is not None
        else ""
    )
    title = check.of or f"output {check.output}"
    said = html.escape(f"{title} at case {check.case}: {wrong.rows} x {wrong.columns} elements; {wrong.sentence}")
    return f"<div style='{STYLE};margin:4px 0'>{said}{_draw_cells(wrong)}{values}</div>"


def _draw_cells(wrong: WrongValues) -> str:
    """The cells of the map, more opaque where more is wrong: one path for each of LEVELS shares."""
    rows, columns = len(wrong.cells), len(wrong.cells[0]) if wrong.cells else 0
    paths: dict[int, str] = {}
    for y, line in enumerate(wrong.cells):
        x = 0
        for level, cells in itertools.groupby(math.ceil(share * LEVELS) for share in line):
            count = len(list(cells))
            if level:
                paths[level] = paths.get(level, "") + f"M{x} {y}h{count}v1h-{count}z"
            x += count
    drawn = "".join(
        f'<path fill-opacity="{0.15 + 0.85 * level / LEVELS:.2f}" d="{path}"/>' for level, path in sorted(paths.items())
    )
    words = "map of the wrong elements"
    drawing = draw_picture(
        (columns * CELL, rows * CELL),
        words,
        wrong.sentence,
        [
            f'<g transform="scale({CELL})" shape-rendering="crispEdges"><g fill="{WRONG}">{drawn}</g>'
            f'<rect width="{columns}" height="{rows}" fill="none" stroke="{QUIET}" stroke-width="{1 / CELL:.2f}"/></g>'
        ],
    )
    return f"<div>{as_image(drawing, f'{words}: {wrong.sentence}')}</div>"
