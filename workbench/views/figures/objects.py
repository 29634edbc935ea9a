"""Plotly's graph objects, loaded when a figure is described: `from workbench.views.figures import objects as go`.

A GPU node without plotly draws the static form of the same descriptions: there an object is a dictionary, unchecked.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        from plotly import graph_objects
    except ImportError:
        return PlainFigure if name == "Figure" else functools.partial(PlainTrace, type=name.lower())
    return getattr(graph_objects, name)


class PlainTrace(dict[str, Any]):
    """A trace; what it has not is None, as in plotly's."""

    def __init__(self, **given: Any) -> None:
        super().__init__({name: value for name, value in given.items() if value is not None})

    def __missing__(self, name: str) -> None:
        return None

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class PlainFigure:
    """A figure with its traces and its layout."""

    def __init__(self, data: Sequence[PlainTrace], layout: Mapping[str, Any]) -> None:
        self.data, self.layout = data, layout

    def to_plotly_json(self) -> dict[str, Any]:
        """Traces and layout as dictionaries."""
        return {"data": [dict(trace) for trace in copy.deepcopy(list(self.data))], "layout": copy.deepcopy(self.layout)}
