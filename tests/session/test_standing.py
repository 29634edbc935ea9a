"""What becomes of the best version of a search: what a person wrote or decided on stays as it is, and this is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from workbench import Session
from workbench.policies.search import SearchTree
from workbench.records.search import NodeResult, SearchCandidate, SearchEvent, SearchSetup
from workbench.session.searching.standing import crown

BASE = "elementwise(relu(x)) .arch(sm_90a) .threads(64) .vector(2)"  # both in the landscape of relu
BEST = "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"
FEWEST = "the fewest joules of search 1"


def make_tree(version: int, aim: str) -> SearchTree:
    """A search with this aim whose one node has this version."""
    tree = SearchTree()
    setup = SearchSetup(strategy="random", seed=0, constants=(), aim=aim, expander="planner")  # type: ignore[arg-type]
    candidate = SearchCandidate(key="k", text=BEST, title="vector 4")
    result = NodeResult(outcome="passed", time_s=1e-3, low_s=1e-3, high_s=1e-3, joules=1.0, version=version)
    for event in (
        SearchEvent(number=0, kind="started", setup=setup),
        SearchEvent(number=1, kind="added", parent=0, candidates=(candidate,)),
        SearchEvent(number=2, kind="tried", node=1, result=result),
    ):
        tree.apply(event)
    assert tree.best is not None and tree.best.number == 1
    return tree


@pytest.mark.parametrize(
    ("by", "decided", "aim", "standing", "said"),
    [
        ("human", "", "energy", "pending", f"v3, which a person wrote, has {FEWEST}; accept it if you want it"),
        ("human", "", "time", "pending", "v3, which a person wrote, has the least time of search 1; accept it if you"),
        ("planner", "person", "energy", "rejected", f"v3, which a person rejected, has {FEWEST}"),
        ("planner", "policy", "energy", "accepted", ""),  # by the search, as it was no faster
        ("planner", "", "energy", "accepted", f"v3 was pending; it is accepted now: {FEWEST} at a time that is not"),
        (
            "planner",
            "",
            "time",
            "pending",
            "v3 has the least time of search 1, but whether it is faster than v1 cannot",
        ),
        ("planner", "person", "time", "rejected", ""),
    ],
)
def test_the_best_of_a_search(tmp_path: Path, by: str, decided: str, aim: str, standing: str, said: str) -> None:
    with Session.create("relu", root=tmp_path, executor="replay") as session:
        session.accept(session.program(BASE).number)
        mine = session.program(BEST)
        session.reject(mine.number, "only its proposal is needed")
        version = session.log.add_version(dataclasses.replace(mine.proposal, by=by))
        assert version.number == 3 and session.test(3).verdict.correct
        if decided:
            session.reject(3, "no", by=decided)
        found = crown(session._deciding, make_tree(3, aim), 1)
        assert session.version(3).standing == standing
        assert found.startswith(said) and bool(found) == bool(said)
