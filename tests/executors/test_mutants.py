"""Right kernels are accepted, also those of odd style; what a change makes wrong is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mutants import MUTANTS, all_mutants, honest, judge, source_of

RESULTS = Path(__file__).parent.parent / "bench" / "results" / "mutants.json"


@pytest.mark.few(1)
@pytest.mark.parametrize("original", MUTANTS)
def test_a_right_kernel_is_accepted(original: str) -> None:
    verdict = judge(original, source_of(original)).verdict
    assert verdict.failure is None and not verdict.suspect


@pytest.mark.few(1)
@pytest.mark.parametrize(("subject", "path"), honest(), ids=lambda value: getattr(value, "stem", value))
def test_a_right_kernel_of_odd_style_is_accepted(subject: str, path: Path) -> None:
    verdict = judge(subject, path.read_text()).verdict
    assert verdict.failure is None and not verdict.refused and not verdict.suspect


@pytest.mark.few(1)
@pytest.mark.parametrize(("original", "mutant"), all_mutants())
def test_a_wrong_kernel_is_refused(original: str, mutant: str) -> None:
    failure = judge(original, source_of(original, mutant)).verdict.failure
    assert failure is not None and "\n" not in failure.message


def test_there_are_forty_right_kernels() -> None:
    assert len(honest()) + len(MUTANTS) >= 40


def test_every_replaced_text_occurs_once_and_the_recorded_verdicts_are_of_these_mutants() -> None:
    for original, mutant in all_mutants():
        assert source_of(original, mutant) != source_of(original)
    rows = json.loads(RESULTS.read_text())
    found = {(row["name"], row["mutant"]): row for row in rows if row["set"] == "mutant"}
    assert set(found) == set(all_mutants()) and len(found) == 64
    assert not [name for name, row in found.items() if row["accepted"]]
    assert sum(bool(row["line"] or "wrong are" in row["hint"]) for row in found.values()) >= 50
    assert all(row["accepted"] for row in rows if row["set"] in ("original", "honest"))
