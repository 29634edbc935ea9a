"""Exercises of the tutorials: `check(name, answer)` tests an answer, `hint(name)` prints the next hint.

A check uses the answer and the session of the notebook. It never raises for a wrong answer.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import cast

from workbench.records import Launch, Work, record
from workbench.records.proposal import HUMAN
from workbench.session import Session

Test = Callable[[object, Session], str]


@record
class Exercise:
    """An exercise with its hints. `test(answer, session)` returns "" if it is solved, else the reason why not."""

    hints: tuple[str, ...]
    test: Test


def _number_test(expected: Callable[[Session], float], what: str) -> Test:
    """A test that accepts numbers within 2 % of the expected one."""

    def test(answer: object, session: Session) -> str:
        if not isinstance(answer, numbers.Real):
            return f"give a number: {what}"
        wanted = expected(session)
        return "" if abs(float(answer) - wanted) <= 0.02 * abs(wanted) else f"{answer:g} is not it"

    return test


def _find_work(session: Session, case: str = "shrunk") -> Work:
    return next(work for work in session.facts.work if work.case == case)


def _first_launch(session: Session, number: int) -> Launch:
    return session.version(number).trials[-1].outcome.launches[0]


def _check_own_version(answer: object, session: Session) -> str:
    own = [v for v in session.versions if v.proposal.by == HUMAN and v.trials and v.trials[-1].verdict.correct]
    return "" if own else "no correct version of your own yet: %%cutegen edit, or session.edit(source)"


def _check_faster(answer: object, session: Session) -> str:
    accepted = [v for v in session.versions if v.decision and v.decision.kind == "accept" and v.parent is not None]
    gained = [v for v in accepted if (v.trials[-1].verdict.speedup or 0) > 1.5]
    return "" if gained else "no accepted version is 1.5x faster than its parent yet"


def _check_reason(answer: object, session: Session) -> str:
    rejected = [
        v
        for v in session.versions
        if v.decision and v.decision.kind == "reject" and len(v.decision.reason.split()) >= 3
    ]
    return "" if rejected else "no version was rejected with a reason of three words or more"


def _check_limiter(answer: object, session: Session) -> str:
    bound = session.version("latest").trials[-1].verdict.bound
    found = bound is not None and str(answer).strip().lower() == bound.limited_by
    return "" if found else "compare intensity and ridge again"


def _percent_without_cluster(session: Session) -> float:
    from workbench import landscapes
    from workbench.landscapes.keys import all_settings

    place = landscapes.find(session.problem)
    times = [
        (row.median_s, all_settings(row.program).get("cluster"))
        for row in (place.correct if place else ())
        if row.median_s
    ]
    return 100 * (min(at for at, cluster in times if cluster == (1, 1)) / min(at for at, _ in times) - 1)


EXERCISES = {
    "least-bytes": Exercise(
        hints=(
            "Softmax reads every element once and writes every element once, if nothing is read twice.",
            "float32 has 4 bytes; the emulated case has 256 x 256 elements.",
        ),
        test=_number_test(lambda s: _find_work(s).least_bytes, "bytes at the emulated case"),
    ),
    "own-version": Exercise(
        hints=(
            "Start from %cutegen show, change one thing, and give the whole file to %%cutegen edit.",
            "Even a comment makes a new version.",
        ),
        test=_check_own_version,
    ),
    "faster": Exercise(
        hints=("%cutegen refine proposes the next change; read its reason.", "%cutegen accept makes it the baseline."),
        test=_check_faster,
    ),
    "say-why": Exercise(hints=("%cutegen reject v3 and then your reason, in words.",), test=_check_reason),
    "sectors": Exercise(
        hints=(
            "%cutegen profile v1 has a column sectors / ideal.",
            "Divide the first number by the second on the line that loads x.",
        ),
        test=_number_test(
            lambda s: _first_launch(s, 1).total.global_sectors / _first_launch(s, 1).total.global_ideal_sectors,
            "how many times the ideal",
        ),
    ),
    "memory-or-compute": Exercise(
        hints=("Compare the intensity with the ridge point in the roofline's caption.",),
        test=_check_limiter,
    ),
    "requests": Exercise(
        hints=(
            "A warp has 32 threads; each moves 4 bytes, or 16 with a 128-bit access.",
            "The number of requests falls by the width of the access.",
        ),
        test=_number_test(lambda s: 4, "by what factor requests fall when each access moves four float32"),
    ),
    "bound-by-hand": Exercise(
        hints=(
            "Every element is read once and written once: how many bytes is that?",
            "16384 rows of 8192 elements of 4 bytes, twice, over 4.8e12 bytes a second; a microsecond is 1e-6 s.",
        ),
        test=_number_test(lambda s: 2 * 16384 * 8192 * 4 / 4.8e12 * 1e6, "microseconds"),
    ),
    "ridge": Exercise(
        hints=(
            "The ridge is where both limits take the same time: FLOPs / peak = bytes / bandwidth.",
            "Divide the peak by the bandwidth: FLOPs per byte.",
        ),
        test=_number_test(lambda s: 989.4e12 / 4.8e12, "FLOPs per byte at the ridge"),
    ),
    "without-cluster": Exercise(
        hints=(
            "place.frame() is a pandas DataFrame; a setting that was left out is an empty text.",
            "frame[frame.correct & (frame.cluster == '')].measured_s.min() against frame.measured_s.min(), in percent.",
        ),
        test=_number_test(_percent_without_cluster, "percent"),
    ),
}
_hints_given: dict[str, int] = {}


def _current_session() -> Session | None:
    from IPython import get_ipython

    shell = get_ipython()
    found: Session | None = shell.user_ns.get("session") if shell else None
    return found


def check(name: str, answer: object = None) -> None:
    """Print whether an exercise is solved."""
    exercise = EXERCISES.get(name)
    if exercise is None:
        print(f"no exercise is called {name!r}; there are: {', '.join(EXERCISES)}")
        return
    session = _current_session()
    try:
        missing = exercise.test(answer, cast(Session, session))  # not all exercises need a session
    except AttributeError:
        if session is not None:
            raise
        missing = "there is no session yet: run the cells above, %load_ext workbench and %cutegen problem first"
    print(f"{name}: solved" if not missing else f"{name}: not yet, {missing}; hint({name!r}) helps")


def hint(name: str) -> None:
    """Print the next hint of an exercise. After the last one it starts again."""
    exercise = EXERCISES.get(name)
    if exercise is None:
        print(f"no exercise is called {name!r}; there are: {', '.join(EXERCISES)}")
        return
    at = _hints_given.get(name, 0) % len(exercise.hints)
    _hints_given[name] = at + 1
    print(f"hint {at + 1} of {len(exercise.hints)}: {exercise.hints[at]}")
