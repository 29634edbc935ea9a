"""A recorded tree search with a language model: its tree, and the same tree again when its replies are played back.

The recording is a session of 18 trials on the emulator. A model wrote each version; a person gave an idea in words,
pinned its candidate, and closed a node. One reply left an old function behind and did not compile; it was repaired.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.policies.search import SearchTree
from workbench.records.search import SearchEvent
from workbench.session import Session, recording
from workbench.wire import from_plain

PATH = Path(__file__).with_name("recorded_search.json")


@pytest.fixture(scope="module")
def search() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())["search"]
    return found


@pytest.fixture(scope="module")
def tree(search: dict[str, Any]) -> SearchTree:
    return SearchTree.replay([from_plain(event, SearchEvent) for event in search["events"]])


def outline(tree: SearchTree) -> list[tuple[object, ...]]:
    """Each node's parent, kind, title, status and outcome, without its time."""
    return [
        (node.parent, node.candidate.kind, node.candidate.title, node.status, node.result and node.result.outcome)
        for node in tree.nodes[1:]
        if node.candidate is not None
    ]


def test_the_tree_has_a_repair_a_closed_branch_and_what_a_person_asked_for(tree: SearchTree) -> None:
    assert len(tree.nodes) > 12 and tree.trials == 18
    repairs = [node for node in tree.nodes[1:] if node.candidate is not None and node.candidate.kind == "repair"]
    assert [(node.passed, tree.node(node.parent or 0).failed) for node in repairs] == [(True, True)]
    assert [node.pruned for node in tree.nodes if node.pruned] == ["by a person"]
    (idea,) = (node for node in tree.nodes[1:] if node.candidate is not None and node.candidate.in_words)
    assert "in registers" in idea.candidate.text
    (child,) = (tree.node(number) for number in idea.children)
    before = [node for node in tree.nodes[1 : child.number] if node.passed]
    assert child.passed and child.result.time_s < min(node.result.time_s for node in before)


def test_each_version_has_the_model_calls_that_made_it(tree: SearchTree, search: dict[str, Any]) -> None:
    found = recording.load(PATH)
    assert found.label.startswith("Recorded") and len(found.steps) == tree.trials == 18
    replies = [exchange.reply for step in found.steps for exchange in step.exchanges]
    assert sorted(replies) == sorted(search["replies"])
    told = [message for exchange in found.steps[9].exchanges for _, message in exchange.messages]
    assert any("What this search has found so far:\n- node 9 (v8) is closed: by a person" in text for text in told)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_replies_make_the_same_tree(
    tree: SearchTree, search: dict[str, Any], server: Any, tmp_path: Path
) -> None:
    server.play(*search["replies"])
    problem = problems.load("cross_entropy")
    with Session.create(problem, root=tmp_path, executor="emulator", arch="sm_80") as session:
        session.model(base_url=server.base, model="recorded", max_tokens=12000)
        for stage in search["stages"]:
            for action, node, text in stage["orders"]:
                session.steer_search(action, node, text)
            again = session.search(search["strategy"], stage["trials"], seed=search["seed"], by="llm")
    assert outline(again) == outline(tree)
    times = {node.number: node.result.time_s for node in tree.nodes if node.passed}
    assert {node.number: node.result.time_s for node in again.nodes if node.passed} == pytest.approx(times, rel=1e-6)
