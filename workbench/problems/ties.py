"""Finds the sizes of a problem that must have one value. Used in workers only: it imports torch.

Sizes of equal value are tried alone on fake tensors, at another value. Where the reference does not run with one
changed, but runs with others of its value changed too, the fewest such are tied to it: `relu(x + b)` with `f32[4096,
8192]` and `f32[8192]` has one N. Attention also runs with values of another head dimension than that of the queries and
keys; where all are equal they are one size.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from workbench.errors import ProblemError
from workbench.problems import cases, loading
from workbench.problems.dtypes import fake_model
from workbench.problems.inputs.given import key_of, read_numbers
from workbench.problems.inputs.integers import fake_inputs
from workbench.problems.settings import Assigned, find_assignments, list_read, module_scalars, spread_ties
from workbench.problems.tracing.fakes import on_fake_tensors
from workbench.records import Case, Operation, Problem, Settings, Size

Group = tuple[str, ...]

ATTENTION = ("scaled_dot_product_attention", "softmax")  # words of modules that may compute it
TRIED_CALLS, LEAST_TRIALS = 3000, 8  # ATen calls on fake tensors that the search may make; runs that it has in any case


def tie_sizes(problem: Problem) -> Problem:
    """The problem with all its ties, and settings that reach every size that is tied to one that the person set.

    Raises `ProblemError` if tied sizes are set to different values.
    """
    own = dataclasses.replace(problem, settings=(), tie=(), keep=(), vary=())
    alone = [name for name in problem.vary if _runs_alone(own, name)]
    tied = dataclasses.replace(problem, tie=_merge([*problem.tie, *_find_ties(problem)], alone))
    given = dict(problem.settings)
    for group in tied.tie:
        values = {name: given[name] for name in group if name in given}
        if len({*values.values()}) > 1:
            said = " and ".join(f"{name}={value}" for name, value in values.items())
            raise ProblemError(f"{said}: the reference runs only if {', '.join(group)} are equal; set one of them")
    return dataclasses.replace(tied, settings=spread_ties(tied, problem.settings))


def _runs_alone(problem: Problem, name: str) -> bool:
    """Whether the reference runs with another value of this size alone, half of it or twice as much."""
    value = int(str(module_scalars(problem.source)[name]))
    for other in (value // 2, 2 * value):
        try:
            cases.measure(problem, "tried", ((name, other),))
        except ProblemError:
            continue
        return True
    return False


def _merge(groups: Iterable[Sequence[str]], alone: Sequence[str]) -> tuple[Group, ...]:
    """Groups that share a name as one, without the names that vary on their own."""
    merged: list[list[str]] = []
    for group in groups:
        names = [name for name in group if name not in alone]
        touching = [other for other in merged if {*other} & {*names}]
        merged = [other for other in merged if other not in touching]
        merged.append(list(dict.fromkeys(name for other in (*touching, names) for name in other)))
    return tuple(tuple(group) for group in merged if len(group) > 1)


def _find_ties(problem: Problem) -> list[Group]:
    items = [
        item
        for item in find_assignments(problem.source)
        if not item.derived and type(item.value) is int and item.value >= 2
    ]
    own = dataclasses.replace(problem, settings=(), tie=(), keep=(), vary=())
    by_value: dict[int, dict[str, Assigned]] = {}
    for item in (*items, *_list_given(own)):
        by_value.setdefault(int(item.value), {}).setdefault(item.name, item)
    sizes = {item.name for item in items}
    equal = {value: names for value, names in by_value.items() if len(names) > 1 and sizes.intersection(names)}
    if not equal:
        return []
    trials = _Trials(own)
    tied = [group for value in sorted(equal, reverse=True) for group in _tie_equal(trials, value, equal[value])]
    is_attention = any(word in problem.source for word in ATTENTION)
    return [*tied, *_tie_head_dimensions(own, equal)] if is_attention else tied


def _list_given(problem: Problem) -> list[Assigned]:
    """The whole numbers of at least 2 that are given to forward and that no number of the text makes."""
    found: list[Assigned] = []
    try:
        given = read_numbers(problem)
    except Exception:  # the person's code raises what it likes; its error is reported when the problem is measured
        return found
    for name, value in given.items():
        if type(value) is int and value >= 2 and (key := key_of(problem, name, value)) == name:
            found.append(Assigned(name=key, value=value, derived=False, span=(0, 0, 0, 0)))
    return found


def _tie_head_dimensions(problem: Problem, equal: dict[int, dict[str, Assigned]]) -> list[Group]:
    """Literals of one value that are the last extents of three inputs of attention, (..., rows, head dimension) each.

    Sizes to which the person gave different names are left apart.
    """
    before = _extents(problem, ())
    last = {f"{name}[{len(shape) - 1}]": len(shape) for name, shape in before.items() if len(shape) > 2}
    groups = []
    for value, named in equal.items():
        unnamed = [name for name in named if not re.search(rf"\b{re.escape(name)}\b", problem.source)]
        changed = {name: _changed(before, _extents(problem, ((name, _other(value)),))) for name in unnamed}
        names = [name for name, places in changed.items() if places and {*places} <= {*last}]
        ranks = [last[place] for name in names for place in changed[name]]
        if len(names) > 1 and len(ranks) == 3 and len({*ranks}) == 1:
            groups.append(tuple(names))
    return groups


def _tie_equal(trials: _Trials, value: int, named: dict[str, Assigned]) -> list[Group]:
    """Ties among sizes of one value. A bound of random integers goes with every extent of its value."""
    bounds = [name for name, item in named.items() if item.bounds_values]
    names = [name for name in named if name not in bounds]
    groups: list[Group] = [(name, *bounds) for name in names if bounds]
    tied = {name for group in groups for name in group} if len(names) == 1 else set()
    for name in names:
        if name in tied or trials.runs({name}, value):
            continue
        others = [other for other in names if other != name]
        if others and trials.runs({name, *others}, value):
            others = _list_needed(trials, value, name, others)
        else:  # one of them cannot change at all: the two channels of a flow beside a batch of two
            others = next(([other] for other in others if trials.runs({name, other}, value)), [])
        if not others:
            continue
        groups.append((name, *others))
        tied |= {name, *others}
    order = [*names, *bounds]
    return [tuple(sorted(group, key=order.index)) for group in groups]


def _list_needed(trials: _Trials, value: int, name: str, others: list[str]) -> list[str]:
    """The fewest of the others that have to change with a size. Those of another axis go only together: the rows of two
    square images, where the size is the columns of both.
    """
    needed = [*others]
    for other in others:
        fewer = {name, *needed} - {other}
        if len(fewer) > 1 and trials.runs(fewer, value):
            needed.remove(other)
    sizes = range(1, len(needed) // 2 + 1) if len(needed) > 2 else ()
    groups = (group for size in sizes for group in itertools.combinations(needed, size))
    return list(next((group for group in groups if trials.runs({name, *group}, value)), needed))


class _Trials:
    """Runs of the reference on fake tensors with some sizes changed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.left = LEAST_TRIALS
        self.known: dict[tuple[frozenset[str], int], bool] = {}
        calls = self._count_calls()
        self.left = max(LEAST_TRIALS, TRIED_CALLS // max(calls, 1)) if calls else 0

    def _count_calls(self) -> int:
        """ATen calls of one run; 0 if the reference does not run as it is."""
        try:
            return max(1, cases.measure(self.problem, "full").calls)
        except ProblemError:
            return 0

    def runs(self, names: Iterable[str], value: int) -> bool:
        """Whether the reference runs and has a result with these sizes at another value than theirs. False if unknown
        because no run is left.
        """
        key = frozenset(names), value
        if key not in self.known:
            if not self.left:
                return False
            self.left -= 1
            other = value // 2 if value % 2 == 0 and value > 2 else 2 * value
            try:
                found = cases.measure(self.problem, "tried", tuple((name, other) for name in sorted(key[0])))
                self.known[key] = all(spec.elements for spec in found.case.outputs)
            except ProblemError:
                self.known[key] = False
        return self.known[key]


def describe_sizes(
    problem: Problem, found: Sequence[Case], notes: Sequence[str], graph: Sequence[Operation]
) -> tuple[Size, ...]:
    """The problem's sizes: which extents each is, and whether a case varies it. Numbers that are no extent are left
    out, unless they are tied to one; so are the 2 of real and imaginary parts.
    """
    parts = {op.operands[0].split(":")[-1] for op in graph if op.target.startswith("aten.view_as_complex")}
    given = dict(problem.settings)
    groups = {group[0]: group for group in problem.tie}
    following = {name for group in problem.tie for name in group[1:]}
    values = {
        item.name: int(given.get(item.name, item.value))  # type: ignore[arg-type]
        for item in find_assignments(problem.source)
        if not item.derived and type(item.value) is int and item.value >= 1 and item.name not in following
    }
    before = _extents(problem, ())
    sizes = []
    for name, value in values.items():
        group = groups.get(name, (name,))
        extents = _changed(before, _extents(problem, tuple((one, _other(value)) for one in group)))
        pairs = {f"{part}[{len(before[part]) - 1}]" for part in parts if part in before}
        if {*extents} <= pairs:
            continue
        taken = {dict(case.settings).get(name, value) for case in found if case.name != "full"} or {value}
        varied = len(taken) > 1
        why = "" if varied else _explain(problem, group, notes, int(str(taken.pop())))
        sizes.append(Size(name=name, value=value, tied=group[1:], extents=extents, varied=varied, why=why))
    return tuple(sizes)


def list_attributes(problem: Problem) -> dict[str, int]:
    """Numbers of the text, and their values, that no extent of an input, a parameter or a buffer is made of: a number
    of heads, of layers (which decides how many parameters there are), the k of a topk. Kernels have them written in.
    So are those that forward reads by name, if no extent that they decide has their value (the length of a group of
    which there are `n // GROUP`).
    """
    before, groups = _extents(problem, ()), {group[0]: group for group in problem.tie}
    read, found = list_read(problem.source), {}
    for name, value in cases.sizes(problem, 2).items():
        changed = tuple((one, _other(value)) for one in groups.get(name, (name,)))
        after = _extents(problem, changed)
        is_read = name in read and value not in _values_at(before, _changed(before, after))
        is_depth = after.keys() != before.keys()  # other parameters, as of a list of so many layers
        if before and after and (is_depth or before == after or is_read):
            found[name] = value
    return found


def _values_at(extents: Extents, axes: Sequence[str]) -> set[int]:
    """The extents of axes such as `x[1]`."""
    parts = [axis.removesuffix("]").rpartition("[") for axis in axes]
    return {extents[name][int(axis)] for name, _, axis in parts}


def list_counts(problem: Problem) -> dict[str, int]:
    """Numbers of the text, and their values, that decide how many tensors forward takes: the length of a list."""
    module = loading.load_module(problem)
    if not _extents(problem, ()) or loading.find_call(module, problem).is_flat:
        return {}
    names, found = loading.find_call(module, problem).names, {}
    for name, value in cases.sizes(problem, 2).items():
        changed = ((name, _other(value)),)
        if _extents(problem, changed):
            other = loading.load_module(problem, changed)
            if loading.find_call(other, problem).names != names:
                found[name] = value
    return found


def _other(value: int) -> int:
    return value * 2 if value > 1 else 3


def _explain(problem: Problem, group: Group, notes: Sequence[str], value: int) -> str:
    """Why no case that is run varies a size from this value."""
    if {*group} & {*problem.keep}:
        return "it is kept"
    if {*group} & {name for name, _ in problem.settings}:
        return "it was set"
    return next((note for note in notes if any(f"{name} stays" in note for name in group)), f"{value} in every case")


Extents = dict[str, tuple[int, ...]]


def _extents(problem: Problem, settings: Settings) -> Extents:
    """Shapes of inputs, parameters and buffers, without a run of forward; {} where they cannot be made."""
    found: Extents = {}
    try:
        module = loading.load_module(problem, settings)
        with on_fake_tensors():
            inputs = fake_inputs(module, problem)
            given = loading.name_tensors(module, problem, inputs)
            found |= {name: tuple(value.shape) for name, value in given.items()}
            state = loading.state_of(fake_model(module.Model, module, problem))
            found |= {f"self.{name}" if name in given else name: tuple(value.shape) for name, value in state.items()}
    except Exception:  # the person's code raises what it likes at sizes that it was not written for
        return found
    return found


def _changed(before: Extents, after: Extents) -> tuple[str, ...]:
    """Axes that differ: `x[1]`."""
    return tuple(
        f"{name}[{axis}]"
        for name, shape in before.items()
        if name in after and len(after[name]) == len(shape)
        for axis, (old, new) in enumerate(zip(shape, after[name], strict=True))
        if old != new
    )
