"""A search that is killed at random moments and resumed has the same tree; no trial is lost or run twice."""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path

import pytest
from nursery import start_nursery

from workbench.policies.search import SearchTree
from workbench.records.search import SearchEvent
from workbench.store import Store
from workbench.trust import DATABASE


def kill_often(folder: Path, trials: int, strategy: str, longest_s: float) -> int:
    """Start a process that searches and kill it at a random moment, until the search is at its end. Returns how often
    it was killed before that.
    """
    moments = random.Random(20261127)
    kills, known, limit_s = 0, 0, longest_s
    with start_nursery("worker_search.py", str(folder), str(trials), strategy) as nursery:
        while not is_over(folder):
            number = nursery.begin(str(folder))
            time.sleep(moments.uniform(0.0, limit_s))
            nursery.kill(number)
            kills += bool(known or read_events(folder))
            found = len(read_events(folder))
            limit_s = longest_s if found > known else 1.2 * limit_s  # a busy machine gets less far before each kill
            known = found
    return kills - 1


def is_over(folder: Path) -> bool:
    """Whether the last event says that the search is at its end."""
    events = read_events(folder)
    return bool(events) and events[-1].kind == "stopped"


def read_events(folder: Path) -> tuple[SearchEvent, ...]:
    """The events of the session's only search; none before the session is there."""
    if not (folder / DATABASE).exists():
        return ()
    store = Store(folder / DATABASE, write=False)
    try:
        assert set(store.searches()) <= {1}
        return store.search_events(1)
    finally:
        store.close()


def without_times(event: SearchEvent) -> SearchEvent:
    """The event without what the clock says."""
    result = event.result
    return dataclasses.replace(event, at="", result=dataclasses.replace(result, seconds=0.0) if result else None)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kills", "trials", "strategy", "longest_s"),
    [(10, 12, "tree", 0.1), (50, 40, "annealing", 0.06)],
)
def test_a_killed_search_goes_on_where_it_was(
    tmp_path: Path, kills: int, trials: int, strategy: str, longest_s: float
) -> None:
    folder = tmp_path / "killed"
    assert kill_often(folder, trials, strategy, longest_s) >= kills
    killed, whole = read_events(folder), read_events(tmp_path / "whole")
    assert [without_times(one) for one in killed] == [without_times(one) for one in whole]
    tree = SearchTree.replay(killed)
    assert len(tree.tried) == len(set(tree.tried)) == trials
    store = Store(folder / DATABASE)
    versions = {version.number: version for version in store.versions()}
    store.close()
    assert not store.damage
    numbers = [tree.nodes[number].result.version for number in tree.tried]
    assert sorted(numbers) == sorted(versions)  # each try is a version, and no version was made twice
    assert all(len(version.trials) == 1 for version in versions.values())
