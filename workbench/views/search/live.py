"""The tree of a search in a notebook while the search runs: one output that is replaced, and that stays as it was last.

run_search(space, evaluator, strategy, ShownLog(MemoryLog()))
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench.policies.search import SearchLog, SearchTree
from workbench.records.search import SearchEvent
from workbench.views.search.tree_figure import draw_search_tree
from workbench.views.text.mime_bundle import MimeBundle

EVERY_S = 0.5  # a faster search is drawn this often


class LiveTree:
    """An output of the current cell that shows a tree; `show` replaces it, at most every half second.

    Outside IPython the tree is printed once, at the end.
    """

    def __init__(self) -> None:
        self._handle: object = None
        self._last = 0.0

    def show(self, tree: SearchTree, *, now: bool = False) -> bool:
        """Draw the tree, unless it was drawn just before and `now` is not set; returns whether it was drawn."""
        if not now and time.monotonic() - self._last < EVERY_S:
            return False
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None:
            if now:
                print(draw_search_tree(tree).text)
            return now
        drawn = static(draw_search_tree(tree))
        if self._handle is None:
            self._handle = display(drawn, raw=True, display_id=True)
        else:
            self._handle.update(drawn, raw=True)  # type: ignore[attr-defined]
        self._last = time.monotonic()
        return True


def static(drawn: MimeBundle) -> dict[str, object]:
    """The bundle without plotly, which would be drawn anew with each update, and flicker."""
    bundle = drawn._repr_mimebundle_()
    return {kind: value for kind, value in bundle.items() if kind in ("text/plain", "image/svg+xml")}


class ShownLog:
    """A search's log that draws the tree in the notebook as events come in; they are kept by `log`."""

    def __init__(self, log: SearchLog) -> None:
        self.log, self.display = log, LiveTree()
        self._tree = SearchTree()

    def events(self, start: int = 0) -> Sequence[SearchEvent]:
        """The events from number `start` on."""
        return self.log.events(start)

    def append(self, event: SearchEvent) -> SearchEvent:
        """Keep an event, and draw the tree with it; with the last one in any case."""
        kept = self.log.append(event)
        for one in self.log.events(self._tree.events):
            self._tree.apply(one)
        self.display.show(self._tree, now=kept.kind == "stopped")
        return kept
