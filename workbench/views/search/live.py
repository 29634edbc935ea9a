"""The tree of a search in a notebook while the search runs: one output that is replaced, and that stays as it was last.

run_search(space, evaluator, strategy, ShownLog(MemoryLog()))
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench.policies.search import SearchLog, SearchTree
from workbench.records import Version
from workbench.records.search import SearchEvent
from workbench.views.search.tree_figure import draw_search_tree
from workbench.views.text.mime_bundle import MimeBundle

EVERY_S = 0.5  # a faster search is drawn this often


class LiveTree:
    """An output of the current cell that shows a tree. In a terminal the tree is written once, at the end."""

    def __init__(self) -> None:
        self._handle: object = None
        self._last = 0.0

    def begin(self) -> None:
        """Make the output, where a search runs on beyond the cell that it belongs to."""
        if _replaces_outputs():
            self._put({"text/plain": "the search begins"})

    def show(self, tree: SearchTree, versions: Sequence[Version] = ()) -> bool:
        """Replace the output, at most every half second; returns whether that was done."""
        if time.monotonic() - self._last < EVERY_S or not _replaces_outputs():
            return False
        self._put(without_plotly(draw_search_tree(tree, versions=versions)))
        return True

    def end(self, tree: SearchTree, versions: Sequence[Version] = (), said: Sequence[str] = ()) -> None:
        """Replace the output by the tree as it stays, with what else is to be said."""
        drawn = draw_search_tree(tree, versions=versions, said=said)
        if _replaces_outputs():
            self._put(drawn._repr_mimebundle_())
        else:
            print(drawn.text)

    def _put(self, bundle: dict[str, object]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)  # type: ignore[attr-defined]
        self._last = time.monotonic()


def _replaces_outputs() -> bool:
    """Whether this is a notebook; a terminal writes an output that is replaced below the old one."""
    from IPython import get_ipython
    from IPython.terminal.interactiveshell import TerminalInteractiveShell

    shell = get_ipython()
    return shell is not None and not isinstance(shell, TerminalInteractiveShell)


def without_plotly(drawn: MimeBundle) -> dict[str, object]:
    """A drawing while the search runs: without plotly, whose first figure JupyterLab would keep."""
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
        if kept.kind == "stopped":
            self.display.end(self._tree)
        else:
            self.display.show(self._tree)
        return kept
