"""The log of a search in the database of its session."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

from workbench import evaluate
from workbench.policies.search import SearchTree
from workbench.records import Event
from workbench.records.search import SearchEvent
from workbench.session.log import SessionLog


class StoreLog:
    """The events of one search of a session. Each is on disk before the search goes on, and views are told of it."""

    def __init__(self, log: SessionLog, search: int) -> None:
        self.log, self.search = log, search
        self._events = list(log.store.search_events(search))
        self._lock = threading.Lock()

    def events(self, start: int = 0) -> Sequence[SearchEvent]:
        """The events from number `start` on."""
        return self._events[start:]

    def append(self, event: SearchEvent) -> SearchEvent:
        """Keep an event under the next number, with the time."""
        with self._lock:
            kept = dataclasses.replace(event, number=len(self._events), at=event.at or evaluate.now())
            self.log.store.add_search_event(self.search, kept)
            self._events.append(kept)
        data = (("search", self.search), ("number", kept.number))
        self.log.notify(Event(kind="search", message=describe_event(kept), data=data))
        return kept

    def tree(self) -> SearchTree:
        """The tree after all events."""
        return SearchTree.replay(self.events())


def describe_event(event: SearchEvent) -> str:
    """An event of a search in a line."""
    place = f"node {event.node}" if event.node is not None else ""
    named = ", ".join(candidate.title for candidate in event.candidates)
    result = event.result
    if result is not None:
        time = f" {result.time_s * 1e6:.4g} µs" if result.time_s else ""
        how = "screened out" if result.screened else result.outcome
        number = f" (v{result.version})" if result.version is not None else ""
        return f"{place}{number}: {how}{time}" + (f"; {result.message}" if result.message else "")
    if event.kind == "opened":
        place = f"{len(event.candidates)} new below {place}"
    text = " ".join(filter(None, (event.kind, place, named)))
    return f"{text}: {event.reason}" if event.reason else text
