"""Decides the precision of a problem that is as its text declares it. Used in workers only: it imports torch.

It is fp32, fp16 or bf16 if every floating input, parameter and buffer has that dtype, else mixed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from types import ModuleType

import torch

from workbench.problems import loading
from workbench.problems.inputs.integers import fake_inputs
from workbench.problems.tracing.fakes import on_fake_tensors
from workbench.records import Precision, Problem

UNIFORM: dict[torch.dtype, Precision] = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
MOST_NAMED = 4  # tensors that a note names


def decide_precision(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """(the problem with its precision decided, a note on what an explicit precision casts).

    A reference that does not run leaves it as mixed: its error is reported when it is measured.
    """
    try:
        found = declared_dtypes(problem)
    except Exception:  # the person's code raises what it likes
        return dataclasses.replace(
            problem, precision="mixed" if problem.precision == "declared" else problem.precision
        ), ()
    floating = {name: dtype for name, dtype in found.items() if dtype.is_floating_point or dtype.is_complex}
    if problem.precision == "declared":
        kinds = {*floating.values()} or {torch.float32}
        precision: Precision = UNIFORM.get(next(iter(kinds)), "mixed") if len(kinds) == 1 else "mixed"
        return dataclasses.replace(problem, precision=precision), ()
    wanted = loading.DTYPES.get(problem.precision)
    return problem, tuple(_note_casts(problem.precision, wanted, floating)) if wanted is not None else ()


def decide_mode(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """(the problem in eval mode if the module puts itself there, a note that says so)."""
    if problem.mode == "eval":
        return problem, ()
    module = loading.load_module(problem)
    try:
        with on_fake_tensors():
            training = fake_model(module.Model, module, problem).training
    except Exception:  # the person's code raises what it likes; it is reported when the problem is measured
        return problem, ()
    if training:
        return problem, ()
    return dataclasses.replace(problem, mode="eval"), ("eval mode: __init__ calls eval()",)


def _note_casts(precision: str, wanted: torch.dtype, floating: dict[str, torch.dtype]) -> Iterator[str]:
    parts = []
    for dtype in dict.fromkeys(floating.values()):
        names = [name for name, own in floating.items() if own == dtype]
        if dtype != wanted and not dtype.is_complex:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            parts.append(f"{', '.join(names[:MOST_NAMED])}{more} from {_name(dtype)}")
    if parts:
        yield f"--precision {precision} casts {', '.join(parts)} to {_name(wanted)}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def declared_dtypes(problem: Problem) -> dict[str, torch.dtype]:
    """Dtypes of inputs by forward's argument, and of parameters and buffers by name, before any cast."""
    bare = dataclasses.replace(problem, precision="declared")
    module = loading.load_module(bare)
    with on_fake_tensors():
        inputs = fake_inputs(module, bare)
        model = fake_model(module.Model, module, bare)
        found = {name: value.dtype for name, value in loading.name_tensors(module, bare, inputs).items()}
        return found | {name: value.dtype for name, value in loading.state_of(model).items()}


def fake_model(model: type[torch.nn.Module], init_from: ModuleType, problem: Problem) -> torch.nn.Module:
    """The model with fake parameters, cast as the real one would be. To be called under `FakeTensorMode`."""
    with converted_by_replacing():
        made = loading.construct(model, init_from)
        made = loading.set_mode(loading.cast_model(made, problem), problem)
        return loading.adapt_model(made, init_from, problem)


@contextlib.contextmanager
def converted_by_replacing() -> Iterator[None]:
    """Inside, `.half()`, `.to()` and the like replace parameters: torch cannot convert fake ones in place."""
    before = torch.nn.Module._apply
    torch.nn.Module._apply = _replace_state
    try:
        yield
    finally:
        torch.nn.Module._apply = before


def _replace_state(
    module: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> torch.nn.Module:
    for child in module.children() if recurse else ():
        child._apply(convert)
    for name, value in module._parameters.items():
        if value is not None:
            module._parameters[name] = torch.nn.Parameter(convert(value.detach()), value.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = convert(buffer)
    return module
