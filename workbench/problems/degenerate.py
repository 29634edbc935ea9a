"""Finds what is wrong with a task. Runs in a worker (imports torch).

Trivial outputs may pass. The reference may differ from itself, may not be finite, or may change its inputs.
"""

from __future__ import annotations

import copy
from types import ModuleType

import torch

from workbench.errors import ProblemError
from workbench.problems import cases, loading
from workbench.problems.model_class import returns_nothing
from workbench.problems.reference.not_finite import find_origin
from workbench.problems.results import as_computable, tensors_of
from workbench.problems.settings import spread_ties
from workbench.records import Degeneracy, Problem, Settings

PLAIN = (bool, int, float, complex, str, list, tuple, dict, type(None))  # attributes that are compared by value
THIN_ELEMENTS, THIN_FLOPS = 1 << 21, 1 << 27


def find_degeneracies(problem: Problem, shrunk: Settings, search: cases.Search) -> tuple[Degeneracy, ...]:
    """Trivial outputs that KernelBench's own tolerance would let pass, and other faults of the task.

    That tolerance is 1e-2 absolute and relative in 16 bits, 1e-4 in 32. The search uses few rows of full length,
    because the results of a softmax or a mean shrink with the length of their axis.
    """
    settings = _thin_settings(problem, search) or shrunk
    try:
        runs = _run_three(problem, settings)
    except (ProblemError, RuntimeError):
        settings = shrunk
        runs = _run_three(problem, shrunk)
    results = [run[0] for run in runs]
    tolerance = 1e-2 if results[0].dtype.itemsize < 4 and results[0].is_floating_point() else 1e-4
    first, _, other = (_as_reals(result).to(torch.float64) for result in results)
    at = ", ".join(f"{name}={value}" for name, value in settings)
    found = [
        Degeneracy(kind="input_modified", message=_describe_modified(name, returns_nothing(problem.source)))
        for name in modified_inputs(problem, shrunk)
    ]
    if assigned := find_assigned(problem, shrunk):
        found.append(
            Degeneracy(
                kind="state_assigned",
                message=f"forward assigns to its own {', '.join(assigned)}, so later calls differ from the first: a "
                "candidate is called twice on one instance, and must keep this state alike",
            )
        )
    if _differ(runs[0], runs[1], tolerance):
        found.append(_random_degeneracy(changes=bool(found)))
    if not torch.isfinite(first).all():
        cause = _find_not_finite(problem, settings)
        found.append(Degeneracy(kind="not_finite", message=f"the reference gives NaN or infinity (at {at}){cause}"))
    if torch.allclose(first, torch.zeros_like(first), atol=tolerance, rtol=tolerance):
        found.append(
            Degeneracy(
                kind="zero",
                message=f"an output of zeros passes an absolute tolerance of {tolerance} (at {at}); "
                "it does not pass here, where tolerance follows the magnitude",
            )
        )
    elif first.numel() > 1 and torch.allclose(first, first.mean().expand_as(first), atol=tolerance, rtol=tolerance):
        found.append(Degeneracy(kind="constant", message=f"a constant output passes (at {at})"))
    if first.shape == other.shape and torch.equal(first, other):
        found.append(Degeneracy(kind="ignores_inputs", message="the reference gives the same result for other inputs"))
    elif first.shape == other.shape and torch.allclose(first, other, atol=tolerance, rtol=tolerance):
        found.append(Degeneracy(kind="replay", message=f"the output for other inputs passes (at {at})"))
    if _is_identity(problem, shrunk):
        found.append(Degeneracy(kind="identity", message="the reference returns its input"))
    return tuple(found)


def _describe_modified(name: str, nothing: bool) -> str:
    """What it means that forward changes an input, also if it returns nothing."""
    copied = "return a changed copy" if nothing else f"change a copy: {name} = {name}.clone()"
    return (
        f"forward changes its input {name} in place{' and returns nothing' * nothing}; a candidate must change it "
        f"alike, which is compared. For a kernel that writes its output only, let forward {copied}"
    )


def _find_not_finite(problem: Problem, settings: Settings) -> str:
    """ ": " and where the first NaN or infinity of a call comes from, if that is found."""
    module = loading.load_module(problem, spread_ties(problem, settings))
    loading.seed_generators(0)
    model = loading.build_model(module, "Model", problem)
    origin = find_origin(model, loading.make_inputs(module, problem, 1), loading.forward_arguments(module))
    return f": {origin}" if origin else ""


def _as_reals(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def _differ(one: list[torch.Tensor], two: list[torch.Tensor], tolerance: float) -> bool:
    """Whether the results of two calls with the same inputs differ."""
    pairs = zip(one, two, strict=True)
    return not all(
        torch.allclose(_as_reals(this).double(), _as_reals(that).double(), tolerance, tolerance, True)
        for this, that in pairs
    )


def _random_degeneracy(changes: bool) -> Degeneracy:
    """Of a reference that draws random numbers, and perhaps changes an input or its state too."""
    own = (
        "cannot be compared, because forward also changes an input or its own state"
        if changes
        else "is compared by law, without a GPU only"
    )
    return Degeneracy(
        kind="random",
        message="the reference draws random numbers: before each call torch's generator is seeded alike. "
        "A candidate matches it if it draws in forward with the same calls of torch, in the same order, and "
        f"hands the numbers to its kernel; one with a generator of its own {own}",
    )


def _is_identity(problem: Problem, settings: Settings) -> bool:
    """Whether the first result is one of the inputs, also at the second call, where these have the other sign."""
    module = loading.load_module(problem, spread_ties(problem, settings))
    loading.seed_generators(0)
    model = loading.build_model(module, "Model", problem)
    inputs = loading.make_inputs(module, problem, 1)
    for sign in (1, -1):
        signed = [
            (sign * as_computable(value)).to(value.dtype)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for value in inputs
        ]
        try:
            with torch.no_grad():
                result = tensors_of(model(*copy.deepcopy(signed)))[0]
        except (RuntimeError, ValueError):
            return False
        same = (
            value
            for value in signed
            if isinstance(value, torch.Tensor) and value.shape == result.shape and value.dtype == result.dtype
        )
        if not any(torch.equal(as_computable(result), as_computable(value)) for value in same):
            return False
    return True


def find_assigned(problem: Problem, settings: Settings) -> tuple[str, ...]:
    """Attributes and buffers of the module and its submodules to which forward assigns another value or tensor.

    Attributes are left out if the result of a later call is that of a first one: they only remember something. Changes
    inside of a tensor are none; they are seen in the graph.
    """
    module = loading.load_module(problem, spread_ties(problem, settings))
    model = loading.build_model(module, "Model", problem)
    inputs = loading.make_inputs(module, problem, 0)
    before = {name: copy.copy(value) if isinstance(value, PLAIN) else value for name, value in _attributes(model)}
    with torch.no_grad():
        fresh = copy.deepcopy(model)
        model(*inputs)
        after, buffers = dict(_attributes(model)), dict(model.named_buffers())
        found = tuple(name for name, value in after.items() if name not in before or _differs(before[name], value))
        if not found or any(name in buffers for name in found):
            return found
        first, later = (_run_once(module, one, problem, 1, 3)[0] for one in (fresh, model))
    return found if first.shape != later.shape or not torch.equal(first.nan_to_num(), later.nan_to_num()) else ()


def _attributes(model: torch.nn.Module) -> list[tuple[str, object]]:
    """Buffers and further attributes of a module and its submodules, by their dotted names."""
    return [
        (f"{prefix}.{name}" if prefix else name, value)
        for prefix, part in model.named_modules()
        for name, value in {**vars(part), **part._buffers}.items()
        if not name.startswith("_")
    ]


def _differs(before: object, now: object) -> bool:
    """Whether an attribute is another one now: another tensor, or another plain value."""
    if isinstance(now, torch.Tensor) or isinstance(before, torch.Tensor):
        return before is not now
    return isinstance(now, PLAIN) and (type(before) is not type(now) or not _is_equal(before, now))


def _is_equal(one: object, other: object) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and not any(map(_differs, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and not any(_differs(one[key], other[key]) for key in one)
    return one == other


def _thin_settings(problem: Problem, search: cases.Search) -> Settings:
    """Settings of a case with few rows of full length; () if none fits.

    The first sizes of the file are halved first. Long axes stay long, so results that shrink with their length are
    seen.
    """
    now = cases.sizes(problem, 2)
    measured = search.measure(problem, now)
    for name in now:
        while now[name] > 3 and measured is not None and cases.budget_ratio(measured, THIN_ELEMENTS, THIN_FLOPS) > 1:
            tried = search.measure(problem, {**now, name: now[name] // 2})
            if tried is None:
                break
            now[name], measured = now[name] // 2, tried
    return (
        tuple(now.items())
        if measured is not None and cases.budget_ratio(measured, THIN_ELEMENTS, THIN_FLOPS) <= 1
        else ()
    )


def _run_three(problem: Problem, settings: Settings) -> tuple[list[torch.Tensor], ...]:
    """Results for the same inputs twice and for others, each of a fresh copy of one model."""
    module = loading.load_module(problem, spread_ties(problem, settings))
    with torch.no_grad():
        loading.seed_generators(0)
        model = loading.build_model(module, "Model", problem)
        return tuple(_run_once(module, model, problem, *seeds) for seeds in ((1, 3), (1, 4), (2, 3)))


def _run_once(
    module: ModuleType, model: torch.nn.Module, problem: Problem, seed: int, forward_seed: int
) -> list[torch.Tensor]:
    inputs = loading.make_inputs(module, problem, seed)
    loading.seed_generators(forward_seed)
    return list(map(as_computable, tensors_of(copy.deepcopy(model)(*inputs))))


def modified_inputs(problem: Problem, settings: Settings) -> tuple[str, ...]:
    """Forward's arguments that the reference writes to, directly or through a view.

    Writing the values that were already there counts too.
    """
    module = loading.load_module(problem, spread_ties(problem, settings))
    inputs = loading.make_inputs(module, problem, 0)
    named = loading.name_tensors(module, problem, inputs)
    before = [(value._version, value.clone()) for value in named.values()]
    with torch.no_grad():
        loading.build_model(module, "Model", problem)(*inputs)
    return tuple(
        name
        for (name, value), (version, old) in zip(named.items(), before, strict=True)
        if value._version != version
        or not torch.equal(as_computable(value).nan_to_num(), as_computable(old).nan_to_num())
    )
