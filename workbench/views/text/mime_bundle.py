"""The result of every view: an object with text, HTML, SVG and plotly JSON, and functions that format numbers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

PLOTLY = "application/vnd.plotly.v1+json"
DIGITS = 6  # significant ones
# of plain text alone JupyterLab breaks words
WHOLE_WORDS = "margin:0;padding:0;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"


class MimeBundle:
    """A MIME bundle for a notebook. `text` is always set, and `str()` returns it; alone it is shown with whole words.

    If `parts` are given, a notebook displays each of them as an output instead. An untrusted notebook drops a picture
    inside HTML, but shows a picture in a bundle of its own. What has both a live and a static picture is not kept a
    third time as HTML, which is for reports. Numbers in `plotly` are rounded to DIGITS, so that a saved notebook does
    not depend on a machine's last bits.
    """

    def __init__(
        self,
        text: str,
        *,
        html: str = "",
        markdown: str = "",
        svg: str = "",
        plotly: Mapping[str, object] | None = None,
        parts: Sequence[MimeBundle] = (),
    ) -> None:
        self.text, self.html, self.markdown, self.svg = text, html, markdown, svg
        self.plotly, self.parts = _round(plotly), tuple(parts)

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def _ipython_display_(self) -> None:
        if not self.parts:
            raise NotImplementedError  # IPython then asks for the bundle
        from IPython.display import display

        for part in self.parts:
            display(part)

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        bundle: dict[str, object] = {"text/plain": self.text}
        is_drawn = self.svg and self.plotly
        if (self.html and not is_drawn) or not (self.html or self.markdown or self.svg):
            bundle["text/html"] = self.html or f'<pre style="{WHOLE_WORDS}">{html.escape(self.text)}</pre>'
        if self.markdown:
            bundle["text/markdown"] = self.markdown
        if self.svg:
            bundle["image/svg+xml"] = self.svg
        if self.plotly:
            bundle[PLOTLY] = self.plotly
        return bundle

    def replace(self, handle: Any) -> None:
        """Show it in the place of a displayed output. The static picture goes first: of two of plotly's, JupyterLab
        keeps the older one.
        """
        bundle = self._repr_mimebundle_()
        if self.plotly:
            handle.update({kind: shown for kind, shown in bundle.items() if kind != PLOTLY}, raw=True)
        handle.update(bundle, raw=True)


def _round(value: Any) -> Any:
    """JSON with its floats rounded to DIGITS significant digits."""
    if isinstance(value, Mapping):
        return {name: _round(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def format_seconds(value: float | None) -> str:
    """A time with a suitable unit; a dash for None."""
    if value is None:
        return "—"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} ns"


def format_joules(value: float) -> str:
    """An energy with a suitable unit."""
    for unit, scale in (("J", 1.0), ("mJ", 1e-3), ("µJ", 1e-6)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.4g} nJ"


def format_amount(value: float) -> str:
    """A number with the prefix k, M, G or T, and a space before the prefix."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value:.4g}"


def format_share(value: float) -> str:
    """A share in percent; small ones with their first digit, so that they are not called 0."""
    return f"{value:.0%}" if value >= 0.01 or value == 0 else f"{100 * value:.1g}%"


def format_times(value: float) -> str:
    """How many times as much: three digits, or all of a large number."""
    return f"{value:,.0f}x" if value >= 1000 else f"{value:.3g}x"


def render_table(head: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> tuple[str, str]:
    """A table as (plain text, HTML)."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [max([len(title), *(len(row[n]) for row in cells)]) for n, title in enumerate(head)]
    lines = ["  ".join(title.ljust(width) for title, width in zip(head, widths, strict=True)).rstrip()]
    lines += ["  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    top = "".join(f'<th style="text-align:left">{html.escape(title)}</th>' for title in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{html.escape(value)}</td>' for value in row) + "</tr>"
        for row in cells
    )
    name = f'<caption style="text-align:left">{html.escape(caption)}</caption>'
    page = f"<table>{name}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return "\n".join(([caption] if caption else []) + lines), page
