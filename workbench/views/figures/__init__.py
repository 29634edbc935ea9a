"""Figures: each is described once with plotly's graph objects; `static` draws the same description as SVG."""
