"""Chooses the sizes at which a problem is checked: shrunk for the emulator, odd, tiny, and one over a power of two.

Used in workers only: it imports torch. Sizes are tried on fake tensors first, so a problem of many gigabytes costs no
memory. An integer of the text may be a size, but also an axis, a kernel width or a number of groups. If the reference
breaks when such a number is halved, the number is put back and left alone. Tied sizes (`ties`) move together: the first
of a group stands for all.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from types import ModuleType

import torch

from workbench.errors import ProblemError
from workbench.problems import loading
from workbench.problems.counting import FlopCount
from workbench.problems.dtypes import fake_model
from workbench.problems.inputs.integers import fake_inputs
from workbench.problems.model_class import returns_nothing
from workbench.problems.results import as_computable, flatten_result, spec_of, special_form, special_structure
from workbench.problems.settings import find_assignments, spread_ties
from workbench.problems.tracing.fakes import on_fake_tensors
from workbench.records import NOTHING, Case, Problem, Settings, TensorSpec, record

# elements of all inputs of the shrunk case; inputs and outputs together may have twice as many
ELEMENT_BUDGET = 1 << 16
FLOP_BUDGET = 5 << 20  # a matrix product of 128^3 with its epilogue: well under half a second on the emulator
# elements of parameters and buffers: times as many as of inputs and outputs together, and more than what is refused
STATE_TIMES, MOST_STATE = 8, 1 << 26
TOLERATED = 16  # a problem that cannot be shrunk further is accepted with a note up to so many times the budget
FLOORS = (16, 4, 2)  # sizes go down to the first, and further only if that is not enough
# ATen calls on fake tensors that a search for sizes may make, some milliseconds each; and the least number of runs of
# the reference with which a search is begun
SEARCHED_CALLS, LEAST_RUNS = 6000, 4
MANY_CALLS = 100  # calls of a run from which on sizes are halved together first


# sizes that do not work are tried on purpose, and each error is raised as an exception too
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)


@record
class Measured:
    """A case as measured on fake tensors: specs, parameters and buffers, FLOPs by operation and in matrix products."""

    case: Case
    state: tuple[TensorSpec, ...]
    flops: tuple[tuple[str, int], ...]
    products: int
    dtype: str = "float32"  # of the factors of its products, else the widest that it computes with
    calls: int = 0  # ATen calls
    broadcasts: int = 0  # element-wise calls in which an extent of 1 is broadcast
    form: str = ""  # of the result, see `results.special_form`
    structure: str = ""  # see `results.special_structure`
    plain_arguments: tuple[tuple[str, str, str], ...] = ()  # as in `Facts`

    @property
    def total(self) -> int:
        """All FLOPs."""
        return sum(count for _, count in self.flops)

    @property
    def elements(self) -> int:
        """Elements of all inputs and outputs."""
        return sum(spec.elements for spec in (*self.case.inputs, *self.case.outputs))

    @property
    def state_elements(self) -> int:
        """Elements of all parameters and buffers."""
        return sum(spec.elements for spec in self.state)

    def is_smaller(self, other: Measured) -> bool:
        """Whether it has less than the other to hold or to compute."""
        return any(
            one < than
            for one, than in (
                (self.elements, other.elements),
                (self.total, other.total),
                (self.state_elements, other.state_elements),
            )
        )


class Search:
    """Runs of the reference on fake tensors that a search for sizes may still make; `calls` are a run's ATen calls."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.left = SEARCHED_CALLS // max(calls, 1)

    def measure(self, problem: Problem, settings: dict[str, int]) -> Measured | None:
        """The case at these sizes; None if the reference does not run there, or no run is left."""
        if self.left <= 0:
            return None
        self.left -= 1
        try:
            return measure(problem, "shrunk", tuple(settings.items()))
        except ProblemError:
            return None


class TooLarge(ProblemError):
    """The problem is too large for the emulator even at its smallest sizes, which are `settings`."""

    def __init__(self, message: str, settings: Settings) -> None:
        super().__init__(message)
        self.settings = settings


def outputs_of(result: object) -> tuple[TensorSpec, ...]:
    """Specs of the tensors that forward returned. Raises `ProblemError` for a result that has anything else."""
    return tuple(spec_of(name, value) for name, value in flatten_result(result).items())


def _case(
    name: str, settings: Settings, module: ModuleType, problem: Problem, inputs: list[object], result: object
) -> Case:
    specs = tuple(spec_of(label, value) for label, value in loading.name_tensors(module, problem, inputs).items())
    return Case(name=name, settings=settings, inputs=specs, outputs=outputs_of(result))


@contextlib.contextmanager
def _fixed_outputs() -> Iterator[None]:
    """Inside, a call with `out=` of another shape raises, where torch would warn and give that tensor another shape."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="An output with one or more elements was resized")
        yield


def measure(problem: Problem, name: str, settings: Settings = ()) -> Measured:
    """Run the reference on fake tensors at these settings. Raises `ProblemError` with file and line if it fails."""
    settings = spread_ties(problem, settings)
    module = loading.load_module(problem, settings)
    try:
        with on_fake_tensors():
            inputs = fake_inputs(module, problem)
            model = fake_model(module.Model, module, problem)
            with FlopCount() as counted, _fixed_outputs():
                result = model(*inputs)
            state = tuple(spec_of(label, value) for label, value in loading.state_of(model).items())
            return Measured(
                case=_case(name, settings, module, problem, inputs, result),
                state=state,
                flops=tuple(counted.flops.most_common()),
                products=counted.products,
                dtype=counted.dtype,
                calls=counted.calls,
                broadcasts=counted.broadcasts,
                structure=special_structure(result),
                form=NOTHING if returns_nothing(problem.source) else special_form(result),
                plain_arguments=loading.plain_arguments(module, problem, inputs),
            )
    except ProblemError as error:
        raise ProblemError(f"{problem.origin}: {error}") from None
    except Exception as error:
        raise loading.problem_error(problem, module, error, "the reference does not run: ") from error


def real_case(problem: Problem, name: str, settings: Settings) -> Case:
    """The case of the reference on real tensors at these settings. Raises `ProblemError` if the reference fails."""
    return run_real(problem, name, settings)[0]


def run_real(problem: Problem, name: str, settings: Settings, seed: int = 0) -> tuple[Case, list[torch.Tensor]]:
    """(the case, the results) of the reference on real tensors."""
    case, results, _ = run_changing(problem, name, settings, seed)
    return case, results


def run_changing(
    problem: Problem, name: str, settings: Settings, seed: int = 0
) -> tuple[Case, list[torch.Tensor], list[torch.Tensor]]:
    """(the case, the results, the inputs, parameters and buffers that the call changes) on real tensors."""
    settings = spread_ties(problem, settings)
    module = loading.load_module(problem, settings)
    try:
        with torch.no_grad():
            inputs = loading.make_inputs(module, problem, seed)
            model = loading.build_model(module, "Model", problem)
            given = loading.name_tensors(module, problem, inputs).values()
            before = [(value, value._version) for value in (*given, *loading.state_of(model).values())]
            with _fixed_outputs():
                result = model(*inputs)
            unchanged = {id(value) for value, version in before if value._version == version}
            left = [value for value in (*given, *loading.state_of(model).values()) if id(value) not in unchanged]
            results = [as_computable(value) for value in flatten_result(result).values()]
            return _case(name, settings, module, problem, inputs, result), results, [*map(as_computable, left)]
    except Exception as error:
        at = ", ".join(f"{key}={value}" for key, value in settings)
        raise loading.problem_error(
            problem, module, error, f"the reference does not run at {at or 'its own sizes'}: "
        ) from error


def sizes(problem: Problem, least: int = 16) -> dict[str, int]:
    """Integers of the text that may be sizes: those of at least `least` that the person neither set nor keeps.

    Of tied ones only the first. A number that only bounds random integers is none.
    """
    given = dict(problem.settings)
    fixed = ({*given} | {*problem.keep}) - {*problem.vary}
    following = {name for group in problem.tie for name in group[1:]}
    fixed |= {group[0] for group in problem.tie if fixed.intersection(group)}
    found = {
        item.name: given.get(item.name, item.value)
        for item in find_assignments(problem.source)
        if not item.derived and not item.bounds_values
    }
    return {
        name: value
        for name, value in found.items()
        if type(value) is int and value >= least and name not in fixed and name not in following
    }


def budget_ratio(measured: Measured, elements: int, flops: int) -> float:
    """Size of the case as a multiple of the budget: elements, those of parameters and buffers, or FLOPs, whichever is
    most.
    """
    return max(measured.elements / elements, measured.state_elements / (STATE_TIMES * elements), measured.total / flops)


def _is_refused(measured: Measured) -> bool:
    """Whether the emulator cannot take the case. Weights are only held and read, so it takes more of them."""
    over = max(measured.elements / (2 * ELEMENT_BUDGET), measured.total / FLOP_BUDGET)
    return over > TOLERATED or measured.state_elements > MOST_STATE


def _round_sizes(
    problem: Problem, found: dict[str, int], full: Measured, search: Search
) -> tuple[dict[str, int], Measured]:
    """Round sizes down to powers of two, all at once or name by name, as far as the reference still runs."""
    rounded = {name: 1 << (value.bit_length() - 1) for name, value in found.items()}
    if (measured := search.measure(problem, rounded)) is not None:
        return rounded, measured
    kept, last = dict(found), full
    for name, value in rounded.items():
        if (measured := search.measure(problem, {**kept, name: value})) is not None:
            kept[name], last = value, measured
    return kept, last


def _halve_together(
    problem: Problem, now: dict[str, int], measured: Measured, search: Search
) -> tuple[dict[str, int], Measured]:
    """Halve all sizes at once, as far as the reference runs, while the case is over the emulator's budget."""
    while budget_ratio(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET) > 1:
        tried = {name: max(value // 2, FLOORS[0]) for name, value in now.items()}
        found = search.measure(problem, tried) if tried != now else None
        if found is None:
            break
        now, measured = tried, found
    return now, measured


def shrink(problem: Problem, full: Measured, search: Search) -> tuple[Settings, tuple[str, ...]]:
    """(settings at which inputs, outputs and FLOPs fit the emulator's budget, notes on sizes that could not go down).

    The largest size that may still go down is halved until all fits. Raises `TooLarge` if the smallest sizes do not
    fit, or the search would take minutes.
    """
    if search.left < LEAST_RUNS and budget_ratio(full, 2 * ELEMENT_BUDGET, FLOP_BUDGET) > TOLERATED:
        raise TooLarge(
            f"{problem.origin}: it has {search.calls} operations, so looking for sizes for the emulator would take "
            "minutes; run it on a GPU, or split it",
            (),
        )
    now, measured = _round_sizes(problem, sizes(problem), full, search)
    if search.calls > MANY_CALLS:
        now, measured = _halve_together(problem, now, measured, search)
    pinned: set[str] = set()
    broken: set[str] = set()
    for floor in FLOORS:
        if floor < FLOORS[0]:
            now = {**{name: value for name, value in sizes(problem, 2 * floor).items() if name not in now}, **now}
        while budget_ratio(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET) > 1:
            name = max(
                (name for name in now if name not in pinned and now[name] // 2 >= floor),
                key=lambda name: now[name],
                default=None,
            )
            if name is None or not search.left:
                break
            tried = search.measure(problem, {**now, name: now[name] // 2})
            if tried is None:
                broken.add(name)
            if tried is None or not tried.is_smaller(measured):
                pinned.add(name)  # an axis, a kernel width, a number of groups: no size
            else:
                now[name], measured = now[name] // 2, tried
    over = budget_ratio(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET)
    if _is_refused(measured):
        raise TooLarge(
            f"{problem.origin}: it cannot be shrunk for the emulator ({over:.0f} times too large); "
            f"{_describe_tried(now, pinned)}, or run it on a GPU",
            tuple(now.items()),
        )
    whole = sizes(problem)
    notes = [
        f"{name} {'stays' if now[name] == whole.get(name) else 'is shrunk no further than'} {now[name]}: "
        "the reference does not run with half of it"
        for name in sorted(broken)
    ]
    notes += (
        [f"the shrunk case is {over:.1f}x the emulator's budget; set sizes with --set name=value for faster steps"]
        if over > 1
        else []
    )
    return tuple(now.items()), tuple(notes)


def _describe_tried(now: dict[str, int], pinned: set[str]) -> str:
    """What a search for sizes ended with."""
    if not now:
        return "no number of its text is a size that can be smaller; write the sizes as numbers in get_inputs()"
    reached = ", ".join(
        f"{name}={value}{' (the reference does not run with half of it)' * (name in pinned)}"
        for name, value in now.items()
    )
    return f"tried down to {reached}; use --set name=value"
