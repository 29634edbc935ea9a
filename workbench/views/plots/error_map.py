"""Draws where an output is wrong: a map of its elements as SVG, for light and dark pages."""

from __future__ import annotations

import html

from workbench.records import Check, WrongValues

CELL = 7  # pixels
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
    """A square for each cell of the map, more opaque where more is wrong."""
    rows, columns = len(wrong.cells), len(wrong.cells[0]) if wrong.cells else 0
    width, height = columns * CELL, rows * CELL
    squares = "".join(
        f'<rect x="{x * CELL}" y="{y * CELL}" width="{CELL}" height="{CELL}" fill-opacity="{0.15 + 0.85 * share:.2f}"/>'
        for y, line in enumerate(wrong.cells)
        for x, share in enumerate(line)
        if share > 0
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" style="display:block;'
        f'margin:4px 0;max-width:100%;outline:1px solid var(--jp-border-color1,#999)" '
        f'aria-label="map of the wrong elements">'
        f'<rect width="{width}" height="{height}" fill="var(--jp-layout-color1,#fff)"/>'
        f'<g fill="var(--jp-error-color1,#d32f2f)">{squares}</g></svg>'
    )
