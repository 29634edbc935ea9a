"""After a step that failed no advice goes on in its direction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from workbench import Session, problems
from workbench.probes.moving import extends_failed_step, list_failed_steps
from workbench.proposers.advised import choose_advice, propose_advised
from workbench.records import Move, Verdict, Version
from workbench.views.text.diagnosis import find_move

ADVISED = "access_width"  # wider vectors, then unrolling


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    problem = problems.load("softmax", settings={"batch_size": 4096, "dim": 512})
    with Session.create(problem, root=tmp_path_factory.mktemp("s"), executor="emulator", arch="sm_80") as made:
        made.program("softmax(x) .threads_per_row(1)")
        made.apply_advice("v1", ADVISED)
        yield made


def with_verdict(version: Version, **values: object) -> Version:
    trial = version.trials[-1]
    changed: Verdict = dataclasses.replace(trial.verdict, **values)
    return dataclasses.replace(version, trials=(dataclasses.replace(trial, verdict=changed),))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("values", "goes_up"),
    [({"speedup": 1.2}, True), ({"speedup": 0.99}, False), ({"correct": False, "speedup": None}, False)],
)
def test_only_a_step_that_failed_ends_its_direction(session: Session, values: dict, goes_up: bool) -> None:
    first, second = session.version(1), with_verdict(session.version(2), **values)
    ask = dataclasses.replace(session._proposing.make_ask(first), history=(first, second))
    advice = choose_advice(session.diagnose(1), ADVISED)
    titles = [made.title for made in propose_advised(ask, [advice], most=None)]
    assert second.proposal.title.startswith("vector 2")
    assert any(title.startswith("vector") for title in titles) == goes_up
    assert any(title.startswith("unroll") for title in titles), "another setting is still advised"
    seen = find_move(first, advice, ask.history)
    assert titles[0].startswith(seen.sets)
    assert ("vector only goes on where a step failed" in seen.passed) == (not goes_up)


def test_a_step_that_failed_ends_no_other_direction(session: Session) -> None:
    def write(threads: int) -> str:
        return f"softmax(x) .threads_per_row(1) .threads({threads})"

    failed = [(write(128), write(64))]
    other = Move(setting="threads", direction="other")
    assert extends_failed_step(failed, other, write(32)) and not extends_failed_step(failed, other, write(256))
    assert not extends_failed_step(failed, other, write(32).replace("row(1)", "row(2)")), "it was not tried beside this"
    assert not extends_failed_step([("softmax(x) .threads_per_row(1)", write(64))], other, write(128)), (
        "the default may be more"
    )
    assert not extends_failed_step(failed, Move(setting="vector", direction="more"), write(32))


def test_steps_are_changes_of_one_setting_that_were_judged(session: Session) -> None:
    first, second = session.version(1), session.version(2)
    slow = with_verdict(second, speedup=0.5)
    assert list_failed_steps((first, slow)) == ((first.proposal.candidate.program, slow.proposal.candidate.program),)
    assert list_failed_steps((first, second)) == () == list_failed_steps((first, dataclasses.replace(slow, trials=())))
