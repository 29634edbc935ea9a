"""Makes modules, inputs and models from problem records.

Used in workers only: it imports torch and runs the problem's code.
"""

from __future__ import annotations

import inspect
import linecache
import mmap
import sys
from collections import Counter
from types import ModuleType
from typing import TypeVar

import torch

from workbench.errors import ProblemError
from workbench.problems import with_settings
from workbench.records import Problem, Settings, TensorSpec
from workbench.wire import content_hash

T = TypeVar("T")

_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's value; Python before 3.13 has no name for it

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def load_module(problem: Problem, settings: Settings = ()) -> ModuleType:
    """The problem's module with its own and the case's settings applied.

    Raises `ProblemError` with the line if importing it fails.
    """
    source = with_settings(problem.source, (*problem.settings, *settings))
    name = f"cutegen_problem_{content_hash(source)[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = f"<problem {problem.name} {name[-8:]}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module  # before it runs: dataclasses look their module up
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise problem_error(problem, module, error) from error
    return module


def problem_error(problem: Problem, module: ModuleType, error: Exception, what: str = "") -> ProblemError:
    """An exception in the problem's own code as an error of one line: place, `what` was tried, type and message."""
    line = find_line(error, module.__file__ or "")
    text = next(iter(str(error).splitlines()), "")
    place = f"{problem.origin}:{line}" if line is not None else problem.origin
    return ProblemError(f"{place}: {what}{type(error).__name__}: {text}")


def find_line(error: BaseException, path: str) -> int | None:
    """The innermost line of `path` in an exception's traceback."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def cast(value: T, problem: Problem) -> T:
    """Floating tensors in the problem's precision; integers, bools and everything else as they are."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        converted: T = value.to(DTYPES[problem.precision])
        return converted
    return value


def make_inputs(module: ModuleType, problem: Problem, seed: int, device: str = "cpu") -> list[object]:
    """`get_inputs()` after seeding, made on `device` and cast to the problem's precision."""
    torch.manual_seed(seed)
    with torch.device(device):
        made = module.get_inputs()
    return [cast(value.to(device) if isinstance(value, torch.Tensor) else value, problem) for value in made]


def lazy_zeros(spec: TensorSpec) -> torch.Tensor:
    """Zeros of that shape, dtype and strides, from the start of a page on, as an allocation on a device.

    The system maps their memory only when it is used, and does not count it before (`_MAP_NORESERVE`), so a tensor may
    be larger than the machine's memory.
    """
    size = (
        1 + sum((extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True))
        if all(spec.shape)
        else 0
    )
    dtype = getattr(torch, spec.dtype)
    if not size:
        return torch.zeros(spec.shape, dtype=dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    pages = mmap.mmap(-1, size * dtype.itemsize, flags=flags)
    return torch.frombuffer(pages, dtype=dtype).as_strided(spec.shape, spec.strides)


def build_model(
    module: ModuleType, name: str, problem: Problem, device: str = "cpu", *, init_from: ModuleType | None = None
) -> torch.nn.Module:
    """The module's class `name` (Model or ModelNew) with the problem's init inputs, in its precision and mode."""
    arguments = (init_from or module).get_init_inputs()
    with torch.device(device):
        model = getattr(module, name)(*arguments)
    model = model.to(device)
    if problem.precision in ("fp16", "bf16"):
        model = model.to(DTYPES[problem.precision])
    return model.train(problem.mode == "train")


def pair_parameters(reference: torch.nn.Module, candidate: torch.nn.Module) -> dict[str, str]:
    """Names of the reference's parameters and buffers -> the candidate's: by name, then by a shape that is left once
    on each side.
    """
    left, target = state_of(reference), state_of(candidate)
    pairs = {name: name for name, value in target.items() if name in left and left[name].shape == value.shape}
    source_shapes = Counter(value.shape for name, value in left.items() if name not in pairs)
    target_shapes = Counter(value.shape for name, value in target.items() if name not in pairs)
    for name, value in target.items():
        if name not in pairs and source_shapes[value.shape] == target_shapes[value.shape] == 1:
            key = next(key for key, other in left.items() if other.shape == value.shape and pairs.get(key) != key)
            pairs[key] = name
    return pairs


def copy_parameters(reference: torch.nn.Module, candidate: torch.nn.Module) -> tuple[str, ...]:
    """Copy parameters and buffers to their partners (`pair_parameters`).

    Returns a line for each one that has no counterpart.
    """
    left, target = state_of(reference), state_of(candidate)
    pairs = pair_parameters(reference, candidate)
    with torch.no_grad():
        for key, name in pairs.items():
            target[name].copy_(left[key])
    taken, given = set(pairs), set(pairs.values())
    return (
        *(
            f"{name} {tuple(value.shape)} of ModelNew has no counterpart in Model"
            for name, value in target.items()
            if name not in given
        ),
        *(
            f"{name} {tuple(value.shape)} of Model was not taken over"
            for name, value in left.items()
            if name not in taken
        ),
    )


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def forward_arguments(module: ModuleType) -> tuple[str, ...]:
    """Names of forward's arguments, without self."""
    return tuple(inspect.signature(module.Model.forward).parameters)[1:]
