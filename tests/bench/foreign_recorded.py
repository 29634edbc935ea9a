"""Cases of foreign_kernels.py: the correct versions of the recorded sessions."""

from __future__ import annotations

import functools
import importlib.util
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from foreign_cases import LIMITS, Arguments, Case, Made

from workbench.problems import loading
from workbench.records import Problem, TensorSpec, Work

FOLDER = Path(loading.__file__).parents[1] / "recordings"


def cases() -> Iterator[Case]:
    """The correct versions of the recorded sessions."""
    for path in sorted(FOLDER.glob("*.json")):
        recording = json.loads(path.read_text())["recording"]
        settings = tuple(map(tuple, recording["problem"]["settings"]))
        problem = Problem(**{**recording["problem"], "settings": settings})
        for number, step in enumerate(recording["steps"], 1):
            if step["verdict"] and step["verdict"]["correct"]:
                make = partial(make_recorded, problem=problem, source=step["proposal"]["candidate"]["source"])
                name = f"recorded {path.stem}"
                yield Case(f"{name} v{number}", name, make, partial(full_work, problem))


@functools.cache
def full_inputs(problem: Problem) -> tuple[TensorSpec, ...]:
    """The inputs at the problem's own sizes."""
    from workbench.problems import cases

    return cases.measure(problem, "full").case.inputs


def full_work(problem: Problem) -> Work:
    """Least bytes and FLOPs of a problem at its own sizes. Called outside of an emulation, it also finds the inputs."""
    import full_size  # needs what the planner needs, which a machine that only measures may not have

    full_inputs(problem)
    return full_size.full_work(problem)


def make_recorded(given: Arguments, problem: Problem, source: str) -> Made:
    """A recorded version and its problem."""
    reference = loading.load_module(problem)
    module = load_source(source)
    if given.emulation is None:
        inputs = loading.make_inputs(reference, problem, 0, "cuda")
        model = loading.build_model(module, "ModelNew", problem, "cuda", init_from=reference)
        theirs = loading.build_model(reference, "Model", problem, "cuda")
        loading.copy_parameters(theirs, model)
        return Made(lambda: model(*inputs), lambda: theirs(*inputs), LIMITS[loading.DTYPES[problem.precision]])
    with torch.device("meta"):
        empty = module.ModelNew(*reference.get_init_inputs())
    if problem.precision in ("fp16", "bf16"):
        empty = empty.to(loading.DTYPES[problem.precision])
    model = empty.to_empty(device="cuda").requires_grad_(False)
    zeros = [loading.cast(given.zeros(spec), problem) for spec in full_inputs(problem)]
    return Made(lambda: model(*zeros), lambda: None, 0.0)


def load_source(source: str) -> ModuleType:
    """A module from source text; CuTe DSL reads the file again when it compiles."""
    path = Path(tempfile.mkdtemp(prefix="foreign-")) / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
