"""Problem -> the sizes it is looked at: shrunk for the emulator, odd, and thin (for degeneracy). Used in workers only: it imports torch.

Sizes are tried on fake tensors first, so a problem of many gigabytes costs no memory. A module-level integer may be a size, but also an
axis, a kernel width or a number of groups: a name whose halving breaks the reference is put back and left alone.
"""

from __future__ import annotations

import logging
from types import ModuleType

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from workbench.errors import ProblemError
from workbench.problems import loading, module_scalars
from workbench.problems.counting import FlopCount
from workbench.records import Case, Problem, Settings, TensorSpec, record

ELEMENT_BUDGET = (
    1 << 16
)  # elements of all inputs at the shrunk case; inputs and outputs together may have twice as many
FLOP_BUDGET = 5 << 20  # a matrix product of 128^3 with its epilogue: well under half a second on the emulator
TOLERATED = 16  # a problem that cannot be shrunk to the budget is still accepted up to this many times it, with a note
FLOORS = (16, 4, 2)  # sizes go down to the first; only if that is not enough, further
THIN_ELEMENTS, THIN_FLOPS = 1 << 21, 1 << 27
ODD_OFFSET = (37, 51, 67, 83)  # odd sizes, no multiples of 2, 4, 8, 16


logging.getLogger("torch._subclasses.fake_tensor").setLevel(
    logging.CRITICAL
)  # sizes that do not work are tried, and what went wrong is an exception too


@record
class Measured:
    """A case without its memory: specs, parameters and buffers, FLOPs by operation and in matrix products."""

    case: Case
    state: tuple[TensorSpec, ...]
    flops: tuple[tuple[str, int], ...]
    products: int

    @property
    def total(self) -> int:
        """All FLOPs."""
        return sum(count for _, count in self.flops)

    @property
    def elements(self) -> int:
        """Elements of all inputs and outputs."""
        return sum(count(spec) for spec in (*self.case.inputs, *self.case.outputs))


def count(spec: TensorSpec) -> int:
    """Elements of a tensor."""
    total = 1
    for extent in spec.shape:
        total *= extent
    return total


class TooLarge(ProblemError):
    """Even the smallest sizes are too much for the emulator."""


def stored(spec: TensorSpec) -> int:
    """Elements that a tensor holds in memory: an expanded axis (stride 0) is held once."""
    total = 1
    for extent, stride in zip(spec.shape, spec.strides, strict=True):
        total *= extent if stride or extent == 0 else 1
    return total


def spec_of(name: str, value: torch.Tensor) -> TensorSpec:
    """Name, shape, strides and dtype of a tensor."""
    return TensorSpec(
        name=name,
        shape=tuple(value.shape),
        dtype=str(value.dtype).removeprefix("torch."),
        strides=tuple(value.stride()),
    )


def outputs_of(result: object) -> tuple[TensorSpec, ...]:
    """Specs of what forward returned."""
    values = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(spec_of(f"output{n}", value) for n, value in enumerate(values) if isinstance(value, torch.Tensor))


def state_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers, named."""
    return [*model.named_parameters(), *model.named_buffers()]


def _case(name: str, settings: Settings, module: ModuleType, inputs: list[object], result: object) -> Case:
    labels = loading.forward_arguments(module)
    specs = tuple(
        spec_of(label, value) for label, value in zip(labels, inputs, strict=False) if isinstance(value, torch.Tensor)
    )
    return Case(name=name, settings=settings, inputs=specs, outputs=outputs_of(result))


def measure(problem: Problem, name: str, settings: Settings = ()) -> Measured:
    """The reference on fake tensors at some settings; raises `ProblemError` with file and line when it does not run."""
    module = loading.load_module(problem, settings)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            inputs = [loading.cast(value, problem) for value in module.get_inputs()]
            model = fake_model(module, problem)
            with FlopCount() as counted:
                result = model(*inputs)
            check_result(result)
            state = tuple(spec_of(label, value) for label, value in state_of(model))
            return Measured(
                case=_case(name, settings, module, inputs, result),
                state=state,
                flops=tuple(counted.flops.most_common()),
                products=counted.products,
            )
    except ProblemError as error:
        raise ProblemError(f"{problem.origin}: {error}") from None
    except Exception as error:
        raise loading.refused(problem, module, error, "the reference does not run: ") from error


def check_result(result: object) -> None:
    """Raise `ProblemError` unless forward gives a tensor, or several: nothing else can be compared."""
    values = result if isinstance(result, (tuple, list)) else (result,)
    wrong = [type(value).__name__ for value in values if not isinstance(value, torch.Tensor)]
    if wrong or not values:
        raise ProblemError(
            f"forward returns {wrong[0] if values is not result and wrong else f'a {type(result).__name__} of ' + (', '.join(wrong) or 'nothing')}; let it return a tensor, or a tuple of tensors"
        )


def fake_model(module: ModuleType, problem: Problem) -> torch.nn.Module:
    """Model with fake parameters, made in the problem's dtype (a fake parameter cannot be converted afterwards)."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(loading.DTYPES[problem.precision])
    try:
        return module.Model(*module.get_init_inputs()).train(problem.mode == "train")
    finally:
        torch.set_default_dtype(default)


def real(problem: Problem, name: str, settings: Settings) -> Case:
    """The reference on real tensors at some settings; raises `ProblemError` when it does not run."""
    module = loading.load_module(problem, settings)
    try:
        with torch.no_grad():
            inputs = loading.make_inputs(module, problem, 0)
            return _case(name, settings, module, inputs, loading.build_model(module, "Model", problem)(*inputs))
    except Exception as error:
        at = ", ".join(f"{key}={value}" for key, value in settings)
        raise loading.refused(
            problem, module, error, f"the reference does not run at {at or 'its own sizes'}: "
        ) from error


def sizes(problem: Problem, least: int = 16) -> dict[str, int]:
    """Module-level integers that may be sizes: at least `least`, and not fixed by the person."""
    fixed = dict(problem.settings)
    found = module_scalars(problem.source).items()
    return {
        name: value
        for name, value in found
        if isinstance(value, int) and not isinstance(value, bool) and value >= least and name not in fixed
    }


def _try(problem: Problem, settings: dict[str, int]) -> Measured | None:
    try:
        return measure(problem, "shrunk", tuple(settings.items()))
    except ProblemError:
        return None


def _over(measured: Measured, elements: int, flops: int) -> float:
    """How many times the budget."""
    return max(measured.elements / elements, measured.total / flops)


def _rounded(problem: Problem, found: dict[str, int], full: Measured) -> tuple[dict[str, int], Measured]:
    """Sizes rounded down to powers of two, all at once or name by name, as far as the reference still runs."""
    rounded = {name: 1 << (value.bit_length() - 1) for name, value in found.items()}
    if (measured := _try(problem, rounded)) is not None:
        return rounded, measured
    kept, last = dict(found), full
    for name, value in rounded.items():
        if (measured := _try(problem, {**kept, name: value})) is not None:
            kept[name], last = value, measured
    return kept, last


def shrink(problem: Problem, full: Measured) -> tuple[Settings, tuple[str, ...]]:
    """Settings at which inputs, outputs and FLOPs fit the emulator's budget, with notes about what stood in the way.

    The largest size that may still go down is halved until all fits; raises `TooLarge` when even the smallest sizes are.
    """
    now, measured = _rounded(problem, sizes(problem), full)
    pinned: set[str] = set()
    broken: set[str] = set()
    for floor in FLOORS:
        if floor < FLOORS[0]:
            now = {**{name: value for name, value in sizes(problem, 2 * floor).items() if name not in now}, **now}
        while _over(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET) > 1:
            name = max(
                (name for name in now if name not in pinned and now[name] // 2 >= floor),
                key=lambda name: now[name],
                default=None,
            )
            if name is None:
                break
            tried = _try(problem, {**now, name: now[name] // 2})
            if tried is None:
                broken.add(name)
            if tried is None or (tried.elements >= measured.elements and tried.total >= measured.total):
                pinned.add(name)  # an axis, a kernel width, a number of groups: no size
            else:
                now[name], measured = now[name] // 2, tried
    over = _over(measured, 2 * ELEMENT_BUDGET, FLOP_BUDGET)
    if over > TOLERATED:
        raise TooLarge(
            f"{problem.origin}: the inputs cannot be shrunk for the emulator ({over:.0f}x too large); give module-level sizes, or use --set name=value"
        )
    notes = [f"{name} stays {now[name]}: the reference does not run with half of it" for name in sorted(broken)]
    notes += (
        [f"the shrunk case is {over:.1f}x the emulator's budget; set sizes with --set name=value for faster steps"]
        if over > 1
        else []
    )
    return tuple(now.items()), tuple(notes)


def _odd_sizes(shrunk: Settings) -> dict[str, int]:
    """Near three quarters of each size, odd, no two the same: so that a kernel which swaps two extents is found out."""
    taken: dict[str, int] = {}
    for position, (name, value) in enumerate(shrunk):
        half = max(3, int(str(value)) // 2)
        size = max(3, half + ODD_OFFSET[position % len(ODD_OFFSET)] % half | 1)
        while size in taken.values():
            size += 2
        taken[name] = size
    return taken


def odd(problem: Problem, shrunk: Settings) -> tuple[Case | None, tuple[str, ...]]:
    """The reference at odd sizes: all names at once, or those that it bears; None with a note when it bears none."""
    wanted = _odd_sizes(shrunk)
    try:
        return (real(problem, "odd", tuple(wanted.items())) if wanted else None), ()
    except ProblemError:
        kept: dict[str, int] = {name: int(str(value)) for name, value in shrunk}
        case = None
        for name, value in wanted.items():
            try:
                case = real(problem, "odd", tuple({**kept, name: value}.items()))
                kept[name] = value
            except ProblemError:
                continue
    even = [name for name in wanted if kept[name] != wanted[name]]
    if case is None:
        return None, ("the reference does not run at odd sizes, so only the shrunk sizes are checked",)
    return case, (
        f"the odd case keeps {', '.join(f'{name}={kept[name]}' for name in even)}: the reference does not run at an odd size there",
    )


def thin(problem: Problem) -> Settings:
    """Few rows of full length: the first sizes of the file go down first, so that what shrinks with a long axis is seen as it is."""
    now = sizes(problem, 2)
    measured = _try(problem, now)
    for name in now:
        while now[name] > 3 and measured is not None and _over(measured, THIN_ELEMENTS, THIN_FLOPS) > 1:
            tried = _try(problem, {**now, name: now[name] // 2})
            if tried is None:
                break
            now[name], measured = now[name] // 2, tried
    return tuple(now.items()) if measured is not None and _over(measured, THIN_ELEMENTS, THIN_FLOPS) <= 1 else ()
