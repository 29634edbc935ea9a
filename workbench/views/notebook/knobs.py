"""Sliders for the two knobs of mini-batches, and below them the picture of what they do.

The picture is an output of its own, so a saved notebook shows it as it was last; sliders need a running kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import ipywidgets

from workbench.graphs.batches import Policy
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel
from workbench.views.plots.reading_order import draw_reads
from workbench.views.text.mime_bundle import MimeBundle


class Knobs:
    """Two sliders over one graph. Displaying it shows them and the picture; moving one draws the picture again."""

    def __init__(self, graph: Graph, policy: Policy | None = None, cache: CacheModel | None = None) -> None:
        self.graph, self.policy, self.cache = graph, policy or Policy(), cache
        look: dict[str, Any] = {"min": 0.0, "max": 1.0, "step": 0.025, "continuous_update": False}
        self.mix = ipywidgets.FloatSlider(value=self.policy.mix, description="mix", readout_format=".3f", **look)
        self.p = ipywidgets.FloatSlider(value=self.policy.p, description="p", readout_format=".3f", **look)
        self.box = ipywidgets.HBox([self.mix, self.p])
        self._picture: Any = None
        for slider in (self.mix, self.p):
            slider.observe(self._turn, "value")

    def __repr__(self) -> str:
        return f"<sliders for mix and p over {self.graph.name}; they need a running kernel>"

    def draw(self) -> MimeBundle:
        """The picture for where the sliders are."""
        return draw_reads(self.graph, self.policy, self.cache)

    def _turn(self, _: object) -> None:
        self.policy = dataclasses.replace(self.policy, mix=self.mix.value, p=self.p.value)
        if self._picture is not None:
            self.draw().replace(self._picture)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        shown = self.box._repr_mimebundle_()
        data, metadata = shown if isinstance(shown, tuple) else (shown or {}, {})
        display({**data, "text/plain": repr(self)}, metadata=metadata, raw=True)
        self._picture = display(self.draw(), display_id=True)
