"""A language model as the expander of a search: each child is one proposal, a failure gets a repair, tokens count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_chain import BROKEN, GOOD, LINE, change, whole

from workbench import problems
from workbench.errors import BudgetExceeded, UserError
from workbench.policies.search import SearchTree
from workbench.records.search import SearchBudget
from workbench.session import Session


@pytest.fixture
def session(server: Any, tmp_path: Path) -> Iterator[Session]:
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        made.model(base_url=server.base, model="scripted", max_tokens=4000)
        yield made


def program(text: str) -> str:
    return f"Try it.\n```mucutlass\nelementwise(relu(x)) {text}\n```\n"


def test_a_failure_is_repaired_and_a_person_adds_an_idea(server: Any, session: Session) -> None:
    line = GOOD.splitlines()[LINE - 1]
    server.play(
        whole(BROKEN),
        "It names a missing function.",
        change(LINE, line),
        change(LINE, line + "  # the larger of both", "Say what it does."),  # the same code
        change(LINE, line.replace("cutlass.Float32(0.0)", "cutlass.Float32(0)"), "Write an integer."),
    )
    tree = session.search("tree", 2, by="llm")
    first, repaired = (tree.nodes[number] for number in tree.tried)
    assert not first.passed and repaired.passed and repaired.parent == first.number
    assert repaired.candidate.kind == "repair" and session.version(2).proposal.repairs == 1
    assert [kept.purpose for kept in session.exchanges().values()] == ["synthesis", "diagnosis", "patch"]
    assert (first.result.tokens, tree.tokens) == (150, 450)
    session.steer_search("idea", repaired.number, "explain the maximum")
    tree = session.search("tree", 3, by="llm")
    idea = next(node for node in tree.nodes if node.candidate is not None and node.candidate.in_words)
    (child,) = (tree.nodes[number] for number in idea.children)
    assert child.candidate.title == "Write an integer" and session.version(child.result.version).parent == 2
    assert session.version(3).decision.reason == f"the same code as node {repaired.number} of the search"
    assert any("explain the maximum" in json.dumps(request["body"]["messages"]) for request in server.requests)
    assert SearchTree.replay(session.log.store.search_events(1)).tried == tree.tried


@pytest.mark.slow
def test_tokens_end_a_search(server: Any, session: Session) -> None:
    session.model(language="mucutlass")
    server.play(*(program(f".threads({threads})") for threads in (64, 128, 256, 512)))
    tree = session.search("random", SearchBudget(tokens=300), by="llm")
    assert tree.stopped == "the budget of 300 tokens is used up" and (tree.trials, tree.tokens) == (2, 300)
    with pytest.raises(UserError, match="a budget in dollars needs the model's prices"):
        session.search("random", SearchBudget(usd=1.0), by="llm")
    session.model(budget_tokens=10)
    with pytest.raises(BudgetExceeded):
        session.search("random", SearchBudget(tokens=900), by="llm")
    assert session.search_tree().trials == 2  # what was tried is there
