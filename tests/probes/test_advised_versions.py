"""The version that an advice leads to changes the one setting that its title and the diagnosis name, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from workbench import Session, plugins, problems
from workbench.landscapes.keys import settings_of
from workbench.proposers.advised import choose_advice
from workbench.protocols import RunContext
from workbench.records import Ask, Proposal
from workbench.views.text.diagnosis import diagnosis_report, find_move, notebook_way

FEW = ("matmul", "relu")  # the others are slow


def each(name: str) -> Any:
    return name if name in FEW else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [each(name) for name in problems.shipped()])
def test_each_advice_on_a_first_version_changes_what_it_names(name: str, tmp_path: Path) -> None:
    with Session.create(name, root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        own, found = version.proposal.candidate.program, session.diagnose(1)
        assert own is not None
        rows = rows_of(diagnosis_report(version, found, notebook_way(version, session.versions, has_model=False)).text)
        assert len(rows) == (0 if found.exhausted else len(found.advice))
        for number, row in enumerate(rows, 1):
            advice, made = choose_advice(found, number), propose(session, number)
            if made is None:
                assert "sets" not in row and "by hand" in row["make it"]
                continue
            assert made.candidate.program is not None
            before, after = settings_of(own), settings_of(made.candidate.program)
            (changed,) = {name for name in {*before, *after} if before.get(name) != after.get(name)}
            sets = find_move(version, advice, session.versions).sets
            assert sets.startswith((f"{changed} ", f"without {changed}")) and row["sets"].split("; ")[0] == sets
            assert made.title == f"{sets} ({advice.probe})" and made.parent == 1
            named = row["change"].rpartition("(as settings: ")[2].rstrip(")").split(", ")
            assert changed in named
            for passed in named[: named.index(changed)]:  # why it is not the one that is advised before
                assert re.search(rf"\b{passed}\b.* ha(s|ve) no ", row["sets"].partition("; ")[2])


def propose(session: Session, number: int) -> Proposal | None:
    """What the planner makes of an advice."""
    ask: Ask = session._proposing.make_ask(session.version(1))
    items = plugins.load("proposer", "planner").propose(ask, RunContext(options={"advice": number}))
    return next((item for item in items if isinstance(item, Proposal)), None)


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of each advice in a diagnosis: "change", "sets", "make it", ..."""
    found: list[dict[str, str]] = []
    name = ""
    for line in text.splitlines():
        if line[:1].isdigit():
            found.append({})
        elif (
            found and line.startswith("   ") and line[3:11].strip() in ("change", "gain", "sets", "make it", "example")
        ):
            name = line[3:11].strip()
            found[-1][name] = line[12:]
        elif found and name and line.startswith(" " * 12):
            found[-1][name] += f" {line.strip()}"
        else:
            name = ""
    return found
