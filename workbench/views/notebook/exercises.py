"""Predictions and exercises of the tutorials.

    compare_prediction(guess, result)    a sentence: what the reader expected, and what came out
    check(name, answer)                  whether the answer to an exercise is right
    hint(name)                           the next hint

A check uses the answer and the session of the notebook. It never raises for a wrong answer. Notebooks come unsolved,
with the solution folded below; with CUTEGEN_SOLUTIONS=1 each check also tries the solution, and raises if it is wrong.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Callable
from statistics import fmean, median
from typing import cast

from workbench import landscapes
from workbench.errors import UserError
from workbench.policies.search import load_strategy, share_of_best, walk_landscape
from workbench.records import Launch, Work, record
from workbench.records.proposal import HUMAN
from workbench.records.search import NodeResult, Reward
from workbench.session import Session

Test = Callable[[object, Session], str]
CLOSE = 1.25  # a predicted number within this factor of the result counts as right
SOLUTIONS = "CUTEGEN_SOLUTIONS"
BANKS = 32  # of shared memory, each 4 bytes wide


@record
class Exercise:
    """An exercise with its hints. `test(answer, session)` returns "" if it is solved, else the reason why not.

    `solution` is the answer as a Python expression, in which `session` and `place` are the notebook's.
    """

    hints: tuple[str, ...]
    test: Test
    solution: str


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


def _check_near_bound(answer: object, session: Session) -> str:
    *earlier, latest = session.versions or (None,)
    if latest is None or latest.proposal.by != HUMAN or not latest.trials:
        return "the latest version is not your own: %%cutegen program, %%cutegen edit, or session.edit(source)"
    if latest.proposal.candidate.source in {v.proposal.candidate.source for v in earlier if v}:
        return "that version is not new"
    verdict = latest.trials[-1].verdict
    reached, source = verdict.fraction_of_bound or 0, str(verdict.time_provenance)
    if verdict.recorded is not None and verdict.bound is not None:
        reached, source = verdict.bound.bound_s / verdict.recorded.seconds, "recorded"
    return "" if reached >= 0.8 else f"your version reaches {reached:.0%} of the bound ({source}), not 80%"


def _check_undecided(answer: object, session: Session) -> str:
    try:
        verdict = session.version(str(answer)).trials[-1].verdict
    except (UserError, IndexError):
        return "give a version that was tested, such as 'v2'"
    return "" if verdict.distinguishable is False else "that comparison has an answer: faster or slower"


def _bytes_per_element(session: Session) -> float:
    """Bytes that the latest version that keeps its rows reads and writes for each element of the emulated case."""
    kept = next(v for v in reversed(session.versions) if ".kept()" in (v.proposal.candidate.program or ""))
    total = kept.trials[-1].outcome.launches[0].total
    rows, columns = next(case for case in session.facts.cases if case.name == "shrunk").inputs[0].shape
    return (total.global_read_bytes + total.global_write_bytes) / (rows * columns)


def _check_most_room(answer: object, session: Session) -> str:
    rooms = {f"v{v.number}": session.diagnose(v.number).room or 0.0 for v in session.versions if v.trials}
    if answer not in rooms:
        return "give a version that was tested, such as 'v2'"
    return "" if rooms[str(answer)] == max(rooms.values()) else f"{answer} is {rooms[str(answer)]:.2f} times its bound"


def _check_pitch(answer: object, session: Session) -> str:
    if not isinstance(answer, numbers.Integral) or int(answer) < BANKS:
        return f"give a whole number of elements, at least the {BANKS} of a row"
    served = BANKS // math.gcd(int(answer), BANKS)
    return "" if served == BANKS else f"with a pitch of {answer} a column of the tile lies in {served} of {BANKS} banks"


def _check_limiters(answer: object, session: Session) -> str:
    limits = {v.proposal.title: v.trials[-1].verdict.limit for v in session.versions if v.trials}
    if not isinstance(answer, dict):
        return "give a dict: title of a version -> the resource that limits it"
    unknown = [title for title in answer if title not in limits]
    if unknown or not answer:
        return f"no tested version is called {unknown[0]!r}" if unknown else "the dict is empty"
    wrong = [title for title, said in answer.items() if str(said).strip().lower() != limits[title].lower()]
    return f"look at the counters of {wrong[0]!r} again" if wrong else ""


def _percent_without_cluster(session: Session) -> float:
    from workbench import landscapes
    from workbench.landscapes.keys import all_settings

    place = landscapes.find_near(session.problem, session.device)
    times = [
        (row.median_s, all_settings(row.program).get("cluster"))
        for row in (place.correct if place else ())
        if row.median_s
    ]
    return 100 * (min(at for at, cluster in times if cluster == (1, 1)) / min(at for at, _ in times) - 1)


def _check_knobs(answer: object, session: Session) -> str:
    """Half the unique rows of random batches, and 3 bits of labels, on the graph of tutorial 10."""
    from workbench.graphs.batches import MiniBatches, Policy
    from workbench.graphs.communities import relabel
    from workbench.graphs.generators import Nodes, stochastic_block_model
    from workbench.graphs.locality import measure_batches, summarise

    if not isinstance(answer, tuple) or len(answer) != 2:
        return "give a pair: (mix, p)"
    graph = relabel(stochastic_block_model(8000, 40, 12, given=Nodes(features=32)), "louvain").graph
    found = []
    for mix, p in (answer, (1.0, 0.5)):
        try:
            made = MiniBatches(graph, Policy(mix=mix, p=p, batch=256))
        except UserError as error:
            return str(error)
        found.append(summarise(measure_batches(graph, list(made.epoch(0)))))
    rows, bits = found[0].unique_rows / found[1].unique_rows, found[0].label_bits
    return "" if rows <= 0.5 and bits >= 3 else f"that reads {rows:.0%} of the rows, with {bits:.2f} bits of labels"


def _check_slowest_setting(answer: object, session: Session) -> str:
    from workbench import landscapes
    from workbench.structure.kernels.kernel_rules import rules_of_landscape

    place = landscapes.find_near(session.problem, session.device)
    rules = rules_of_landscape(place) if place else ()
    if not rules:
        return "no rule holds in the landscape of this session"
    settings = [rule.slow.setting for rule in rules]
    if answer not in settings:
        return "give the name of a setting that a rule below the landscape names"
    return "" if answer == settings[0] else f"another setting makes programs slower than {answer} does"


def _passed(time_s: float) -> NodeResult:
    return NodeResult(outcome="passed", time_s=time_s)


def _count_random_trials(session: Session) -> float:
    """The trials after which the median of 20 random searches of the session's landscape has 90 % of the best."""
    place = landscapes.find(session.problem, session.device)
    if place is None:
        raise UserError("nothing was recorded of the session's problem")
    walks = [walk_landscape(place, load_strategy("random"), seed, 20) for seed in range(20)]
    curves = [share_of_best(place, walk) for walk in walks]
    return next(n for n in range(1, 21) if median(curve[n - 1] for curve in curves) >= 0.9)


EXERCISES = {
    "knobs": Exercise(
        hints=(
            "mix decides how many communities, and so how many labels, a batch can have.",
            "Try mix 0.25 with a p above 0.5; the sliders show both figures.",
        ),
        test=_check_knobs,
        solution="(0.25, 0.9)",
    ),
    "cache-rows": Exercise(
        hints=(
            "A row of the features is 32 float32.",
            "The cache model has 64 KiB, and a row takes one line of 128 bytes.",
        ),
        test=_number_test(lambda s: 65536 // 128, "rows that the cache holds"),
        solution="64 * 1024 // (32 * 4)",
    ),
    "least-bytes": Exercise(
        hints=(
            "Softmax reads every element once and writes every element once, if nothing is read twice.",
            "float32 has 4 bytes; the case shrunk has 256 x 256 elements.",
        ),
        test=_number_test(lambda s: _find_work(s).least_bytes, "bytes at case shrunk"),
        solution="256 * 256 * 4 * 2",
    ),
    "near-bound": Exercise(
        hints=(
            "Start from the version that reaches the largest part of the bound: %cutegen history lists them.",
            "elementwise(gelu_tanh(x)) .vector(4), below %%cutegen program; .threads(128) keeps it as fast.",
        ),
        test=_check_near_bound,
        solution="session.program('elementwise(gelu_tanh(x)) .threads(128) .unroll(2) .vector(2)')",
    ),
    "bytes-per-element": Exercise(
        hints=(
            "%cutegen profile VERSION --case shrunk: bytes read and written. It has 256 x 256 elements.",
            "Each float32 is read once and written once.",
        ),
        test=_number_test(_bytes_per_element, "bytes read and written for each element of x"),
        solution="4 + 4",
    ),
    "undecided": Exercise(
        hints=(
            "%cutegen history says 'cannot be told without a GPU' after the speed-up of that version.",
            "Its interval of the speed-up has numbers on both sides of 1.",
        ),
        test=_check_undecided,
        solution="'v5'",
    ),
    "sectors": Exercise(
        hints=(
            "%cutegen profile v1 has a column sectors / ideal.",
            "Divide the first number by the second on the line that loads x.",
        ),
        test=_number_test(
            lambda s: _first_launch(s, 1).total.global_sectors / _first_launch(s, 1).total.global_ideal_sectors,
            "how many times the ideal",
        ),
        solution="65536 / 8192",
    ),
    "pitch": Exercise(
        hints=(
            "Element (row, column) of the tile lies in bank (row * pitch + column) % 32.",
            "All rows of one column lie in different banks if the pitch and 32 have no common factor.",
        ),
        test=_check_pitch,
        solution="33",
    ),
    "re-use": Exercise(
        hints=(
            "For one step of k the tile loads 128 + 128 elements and makes 128 * 128 multiply-adds.",
            "A multiply-add is two FLOPs, a bf16 element two bytes: 2 * 128 * 128 / (2 * (128 + 128)).",
        ),
        test=_number_test(lambda s: 2 * 128 * 128 / (2 * (128 + 128)), "FLOPs per byte that is loaded"),
        solution="2 * 128 * 128 / (2 * (128 + 128))",
    ),
    "what-limits": Exercise(
        hints=(
            "Compare sectors with ideal sectors, bytes with the bound, and the number of CTAs with its rate.",
            "Eight times the ideal sectors is L1; a CTA of one warp that moves 128 bytes is CTA launch.",
        ),
        test=_check_limiters,
        solution="{'A': 'L1', 'B': 'CTA launch', 'C': 'DRAM'}",
    ),
    "bound-by-hand": Exercise(
        hints=(
            "Every element is read once and written once: how many bytes is that?",
            "16384 rows of 8192 elements of 4 bytes, twice, over 4.8e12 bytes a second; a microsecond is 1e-6 s.",
        ),
        test=_number_test(lambda s: 2 * 16384 * 8192 * 4 / 4.8e12 * 1e6, "microseconds"),
        solution="2 * 16384 * 8192 * 4 / 4.8e12 * 1e6",
    ),
    "ridge": Exercise(
        hints=(
            "The ridge is where both limits take the same time: FLOPs / peak = bytes / bandwidth.",
            "Divide the peak by the bandwidth: FLOPs per byte.",
        ),
        test=_number_test(lambda s: 989.4e12 / 4.8e12, "FLOPs per byte at the ridge"),
        solution="989.4e12 / 4.8e12",
    ),
    "registers": Exercise(
        hints=(
            "%cutegen diagnose v3: the evidence of register_pressure has the number.",
            "session.diagnose('v3').advice[0].evidence[0].value",
        ),
        test=_number_test(lambda s: float(s.version(3).trials[-1].outcome.full_builds[0].registers or 0), "registers"),
        solution="255",
    ),
    "most-room": Exercise(
        hints=(
            "%cutegen diagnose prints the time over the attainable bound in its second line.",
            "max(session.versions, key=lambda version: session.diagnose(version.number).room)",
        ),
        test=_check_most_room,
        solution="'v1'",
    ),
    "without-cluster": Exercise(
        hints=(
            "place.frame() is a pandas DataFrame; a setting that was left out is an empty text.",
            "frame[frame.correct & (frame.cluster == '')].measured_s.min() against frame.measured_s.min(), in percent.",
        ),
        test=_number_test(_percent_without_cluster, "percent"),
        solution="100 * (place.frame()[lambda f: f.correct & (f.cluster == '')].measured_s.min() "
        "/ place.frame().measured_s.min() - 1)",
    ),
    "house-ego": Exercise(
        hints=(
            "The node with the outline counts, and all nodes that one edge joins to it.",
            "It has three neighbours: two are in the triangle with it and each other, one is not.",
        ),
        test=_number_test(lambda s: 4, "nodes of the ego graph"),
        solution="4",
    ),
    "slowest-setting": Exercise(
        hints=(
            "The rules below the landscape stand in the order of their effect.",
            "A rule on `threads per row` is about the setting threads_per_row.",
        ),
        test=_check_slowest_setting,
        solution="'parts'",
    ),
    "search-value": Exercise(
        hints=(
            "Three programs were tried in the subtree, so the value is the mean of three rewards.",
            "Twice as fast is log2(2) / 4 = 0.25; as fast as the first is 0.",
        ),
        test=_number_test(
            lambda s: fmean(Reward().of(_passed(time), 400e-6) for time in (400e-6, 200e-6, 100e-6)), "a mean"
        ),
        solution="0.25",
    ),
    "search-trials": Exercise(
        hints=(
            "after(softmax['random'], place, trials) is the share after some trials.",
            "next(n for n in range(1, 21) if ... >= 0.9)",
        ),
        test=_number_test(_count_random_trials, "trials"),
        solution="15",
    ),
}
_hints_given: dict[str, int] = {}


def _current_session() -> Session | None:
    from IPython import get_ipython

    shell = get_ipython()
    found: Session | None = shell.user_ns.get("session") if shell else None
    return found


def compare_prediction(guess: object, result: object) -> None:
    """Print a prediction beside the result: words are compared as they are, numbers as a ratio."""
    said, found = str(guess).strip(), str(result)
    off, is_right = "not what you expected: the text below says why", said.lower() == found.lower()
    if isinstance(guess, numbers.Real) and isinstance(result, numbers.Real):
        expected, actual = float(guess), float(result)
        if expected > 0 and actual > 0:
            ratio = expected / actual
            said, found, is_right = f"{expected:.3g}", f"{actual:.3g}", 1 / CLOSE <= ratio <= CLOSE
            off = f"{max(ratio, 1 / ratio):.2g} times too {'high' if ratio > 1 else 'low'}"
    print(f"predicted: {said}; result: {found}: {'right' if is_right else off}")


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
    if os.environ.get(SOLUTIONS):
        _try_solution(name, exercise, session)
    print(f"{name}: solved" if not missing else f"{name}: not yet, {missing}; hint({name!r}) helps")


def _try_solution(name: str, exercise: Exercise, session: Session | None) -> None:
    from IPython import get_ipython

    names = {"session": session, "place": getattr(get_ipython(), "user_ns", {}).get("place")}
    if missing := exercise.test(eval(exercise.solution, names), cast(Session, session)):
        raise AssertionError(f"the solution of {name} is not right: {missing}")


def hint(name: str) -> None:
    """Print the next hint of an exercise. After the last one it starts again."""
    exercise = EXERCISES.get(name)
    if exercise is None:
        print(f"no exercise is called {name!r}; there are: {', '.join(EXERCISES)}")
        return
    at = _hints_given.get(name, 0) % len(exercise.hints)
    _hints_given[name] = at + 1
    print(f"hint {at + 1} of {len(exercise.hints)}: {exercise.hints[at]}")
