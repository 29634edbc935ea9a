"""Gives forward other numbers than `get_inputs` does, in cases of their own: a kernel may have the number written in.

The reference decides which other values a number can have: it has to run, with finite results, and with others than
before. Used in workers only: it imports torch.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Sequence

import torch

from workbench.errors import ProblemError
from workbench.problems import cases, loading
from workbench.problems.inputs.integers import fake_inputs
from workbench.problems.settings import GIVEN, find_assignments, spread_ties
from workbench.problems.tracing.fakes import on_fake_tensors
from workbench.records import Case, GivenNumber, Problem, Settings

Number = bool | int | float

KINDS = (bool, int, float)
CASES = ("numbers", "numbers2")  # sizes of the shrunk case, and other numbers given to forward
SEEN = 0.01  # least change of a result by another number, as a part of the largest value: beyond every tolerance
# the same of what is changed in place, of which a step of an optimiser is a small part; in these dtypes without TF32
SEEN_IN_PLACE, EXACT = 0.001, (torch.float32, torch.float64)
SMALL = 0.01  # numbers below are terms that keep a division from failing; a factor of them changes nothing
TURNS = 4  # values of a number that are tried because the text compares with what is between
# factors of the further values of numbers; no two numbers have the same, so that they are told apart
FACTORS = (0.625, 0.4375, 0.8125, 0.28125)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run of the reference: its case, numbers by their keys, results and what it changed, with the part of its
    largest value by which each has to change to be another one.
    """

    case: Case
    numbers: dict[str, Number]
    values: tuple[tuple[torch.Tensor, float], ...]


def read_numbers(problem: Problem, settings: Settings = ()) -> dict[str, Number]:
    """The numbers that `get_inputs` gives to forward at these settings, by their expression in forward."""
    return _read_inputs(problem, settings)[0]


def _read_inputs(problem: Problem, settings: Settings) -> tuple[dict[str, Number], list[tuple[int, ...]]]:
    """(the numbers that `get_inputs` gives to forward, by their expression there; the shapes of the tensors)."""
    module = loading.load_module(problem, spread_ties(problem, settings))
    with on_fake_tensors():
        inputs = fake_inputs(module, problem)
    named = zip(loading.find_call(module, problem).names, inputs, strict=True)
    numbers = {name: value for name, value in named if isinstance(value, KINDS)}
    return numbers, [tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor)]


def _try_inputs(problem: Problem, name: str, value: int) -> tuple[dict[str, Number], list[tuple[int, ...]]] | None:
    """The same where a number of the text has another value; None if `get_inputs` does not run then."""
    try:
        return _read_inputs(problem, ((name, value),))
    except Exception:  # the person's code raises what it likes
        return None


def key_of(problem: Problem, name: str, value: Number) -> str:
    """The name of a number in settings: that of a number of the text which makes it, else its own."""
    known = {item.name: item.value for item in find_assignments(problem.source) if not item.derived}
    if name not in known:
        return name
    if not type(known[name]) is type(value) is int:
        return GIVEN + name
    changed = _try_inputs(problem, name, value + 1)
    return name if changed is not None and changed[0].get(name) == value + 1 else GIVEN + name


def list_given(problem: Problem, settings: Settings) -> tuple[GivenNumber, ...]:
    """The numbers that are given to forward; `settings` are those of the smallest sizes, which some of them follow."""
    full, small = read_numbers(problem), read_numbers(problem, settings)
    found = [GivenNumber(name=name, value=value, key=key_of(problem, name, value)) for name, value in full.items()]
    return tuple(
        dataclasses.replace(one, key=_own_key(problem, one.name), follows=True)
        if small.get(one.name) != one.value or _follows_size(problem, one)
        else one
        for one in found
    )


def _own_key(problem: Problem, name: str) -> str:
    """The name in settings of a number alone, also where a number of the text makes it."""
    return GIVEN + name if name in {item.name for item in find_assignments(problem.source)} else name


def _follows_size(problem: Problem, one: GivenNumber) -> bool:
    """Whether a number is tied to an extent of the inputs, or is the same number of the text."""
    alike = [
        item.name
        for item in find_assignments(problem.source)
        if type(item.value) is type(one.value) is int and not item.bounds_values and item.value == one.value
    ]
    if any(one.key in group and {*alike}.intersection(group) - {one.key} for group in problem.tie):
        return True
    known, shapes = _read_inputs(problem, ())
    for name in alike:
        changed = _try_inputs(problem, name, int(one.value) + 1)
        if changed is not None and changed[0].get(one.name) != known[one.name] and changed[1] != shapes:
            return True
    return False


def vary_numbers(
    problem: Problem, settings: Settings, given: Sequence[GivenNumber]
) -> tuple[tuple[GivenNumber, ...], tuple[Case, ...]]:
    """(the numbers with their other values, the cases that have them), at the sizes of the shrunk case."""
    free = [one for one in given if not one.follows and not {one.key, one.name} & {*problem.keep}]
    if not free:
        return tuple(given), ()
    first = _run(problem, "shrunk", (*settings, *((one.key, one.value) for one in free)))
    found: list[Case] = []
    taken: dict[str, list[Number]] = {one.key: [one.value] for one in free}
    for name in CASES:
        last, waiting = first, list(enumerate(free))
        while waiting:  # another number may make the effect of one visible: a rate that of a step
            left = []
            for place, one in waiting:
                known = taken[one.key]
                turned = () if name == CASES[0] else list_turned(problem, one, by_name=True)
                values = (*turned, *_list_others(one.value, place, known, is_first=name == CASES[0]))
                tried = (_run_otherwise(problem, last, name, one.key, value) for value in values)
                run = next(filter(None, tried), None)
                if run is None:
                    left.append((place, one))
                    continue
                last = run
                taken[one.key].append(run.numbers[one.key])
            waiting = left if len(left) < len(waiting) else []
        found += [last.case] if last is not first else []
    others: dict[str, tuple[Number, ...]] = {key: tuple(values[1:]) for key, values in taken.items()}
    return tuple(dataclasses.replace(one, others=others.get(one.key, ())) for one in given), tuple(found)


def _run(problem: Problem, name: str, settings: Settings) -> _Run:
    case, results, changed = cases.run_changing(problem, name, settings)
    exact = problem.precision != "tf32"
    in_place = {id(value) for value in changed}
    return _Run(
        case=case,
        numbers={key: value for key, value in settings if isinstance(value, KINDS)},
        values=(
            *((value, SEEN) for value in results if id(value) not in in_place),
            *((value, SEEN_IN_PLACE if exact and value.dtype in EXACT else SEEN) for value in changed),
        ),
    )


def _run_otherwise(problem: Problem, before: _Run, name: str, key: str, value: Number) -> _Run | None:
    """The run with another value of a number; None if it fails, or its values are those of `before`, empty, not finite
    or constant.
    """
    try:
        run = _run(problem, name, tuple({**before.numbers, key: value}.items()))
    except ProblemError:
        return None
    tensors = [one for one, _ in run.values]
    if not all(one.numel() and bool(one.isfinite().all()) for one in tensors):
        return None
    if all(one.numel() > 1 and bool((one == one.reshape(-1)[0]).all()) for one in tensors):
        return None  # one number everywhere, such as the upper limit of a clamp that is below the lower one
    is_other = [one.shape for one, _ in before.values] != [one.shape for one in tensors]
    return run if is_other or any(map(_differ, before.values, run.values)) else None


def _differ(one: tuple[torch.Tensor, float], other: tuple[torch.Tensor, float]) -> bool:
    """Whether a value changes by the part of its largest that is seen."""
    pair = [torch.view_as_real(value) if value.is_complex() else value for value, _ in (one, other)]
    first, second = (value.to(torch.float64) for value in pair)
    return bool(((first - second).abs() > one[1] * first.abs().max()).any())


def _list_others(value: Number, place: int, taken: Sequence[Number], *, is_first: bool) -> Iterator[Number]:
    """Values to try, in order: first another one like it, later one that is larger or has the other sign."""
    tried: list[Number]
    if isinstance(value, bool):
        tried = [not value]
    elif isinstance(value, int):
        smaller = [*(abs(value) * part // 8 | 1 for part in (5 - place % 3, 3, 1)), value - 1, value // 2, 0]
        larger = [2 * value + 1 + place, value + 7, value + 1, 2 * value]
        tried = [*smaller, *larger] if is_first else [*larger, *reversed(smaller)]
    else:
        factor = FACTORS[place % len(FACTORS)]
        near = [value * factor, value * (1 + factor)] if is_first else [-value, value * 2.5, 0.0]
        tried = [*(near if abs(value) > SMALL else ()), factor, 1 + factor, -factor]
    return (one for one in dict.fromkeys(tried) if one not in taken)


def list_further(one: GivenNumber) -> tuple[Number, ...]:
    """Values that a number has in no case; what it becomes in the graph is traced with them too."""
    known = (one.value, *one.others)
    return (*_list_others(one.value, 0, known, is_first=True), *_list_others(one.value, 0, known, is_first=False))


def list_turned(problem: Problem, one: GivenNumber, *, by_name: bool = False) -> tuple[Number, ...]:
    """Values of a number beyond those with which the text compares anything, or that number `by_name`: forward may turn
    to something else there (`if k < 100`, `min(k, 100)`).
    """
    if isinstance(one.value, bool):
        return ()
    found: list[Number] = []
    own = re.split(r"\W", one.name)[0]
    for number in (number for number, names in _list_compared(problem.source) if own in names or not by_name):
        far = max(1.0, abs(number) / 2)
        sides = [side for side in (1, -1) if side * (number - one.value) >= 0]
        if isinstance(one.value, int):
            found += [math.floor(number) + 1 if side > 0 else math.ceil(number) - 1 for side in sides]
        else:
            found += [number + side * far for side in sides]
    known = (one.value, *one.others)
    return tuple(value for value in dict.fromkeys(found) if value not in known)[:TURNS]


@functools.lru_cache(maxsize=16)
def _list_compared(source: str) -> tuple[tuple[float, frozenset[str]], ...]:
    """(a number, the names beside it) in the text's comparisons and calls of min and max."""
    found: list[tuple[float, frozenset[str]]] = []
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            parts = node.args
        names = frozenset(item.id for part in parts for item in ast.walk(part) if isinstance(item, ast.Name))
        for part in parts:
            with contextlib.suppress(ValueError, TypeError, SyntaxError):
                value = ast.literal_eval(part)
                found += [(value, names)] if type(value) in (int, float) else []
    return tuple(dict.fromkeys(found))
