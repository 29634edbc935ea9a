"""Programs that the language takes and a problem cannot: known from its dtypes and shapes, so that landscape_plan.py leaves them out."""

from __future__ import annotations

import math

from workbench.dsl import Stage, parse
from workbench.dsl.axes import known, view
from workbench.dsl.ir import number, setting
from workbench.records import Facts

KEPT_MOST = 256  # elements of a row that one thread keeps: a thread has 255 registers, and compiling more took from 17 s to over 90 s
HEAD_MOST = 256  # head dimension of attention but by schedule(stages)
DEFAULT_THREADS = {"crossentropy": 1}  # of a row, where threads_per_row is left out; 32 of the others
NARROW = {"bf16": "bfloat16", "f16": "float16"}
RULE = (
    "left out: mma in 16 bits for float32 tensors, attention with head dimensions over 256 but by schedule(stages), kept with more than "
    f"{KEPT_MOST} elements of a row for each thread (compiling takes up to minutes)"
)


def doomed(program: str, facts: Facts) -> str:
    """Why this program fails on the problem at full size, or cannot be compiled in time; "" where nothing is known against it."""
    case = next(case for case in facts.cases if case.name == "full")
    first = next((spec for spec in case.inputs if spec.dtype.startswith(("float", "bfloat"))), case.inputs[0])
    for stage in parse(program).stages:
        mma = setting(stage, "mma")
        if first.dtype == "float32" and mma in NARROW:
            return f"mma({mma}) multiplies {NARROW[str(mma)]}, not float32"
        if stage.operation.name == "attention" and first.shape[-1] > HEAD_MOST and setting(stage, "schedule") != "stages":
            return f"the head dimension is {first.shape[-1]}, more than {HEAD_MOST}"
        if setting(stage, "kept") is not None and first.shape and (each := _kept(stage, first.shape)) > KEPT_MOST:
            return f"each thread keeps {each} elements of a row, more than {KEPT_MOST}"
    return ""


def _kept(stage: Stage, shape: tuple[int, ...]) -> int:
    """Elements of a row that one thread keeps, if the stage's tensor has this shape; of a later stage's, which is smaller, too many."""
    axis = dict(stage.operation.named).get("axis", "last")
    seen = view(axis) if known(axis) else view("last")
    if len(shape) < seen.least:
        return 0
    names = {"shape": _Shape(shape), "math": math}
    exec("\n".join(seen.sizes), names)
    if seen.strided:
        return -(-int(str(names["rows"])) // number(stage, "split", 1)) * number(stage, "vector", 1)
    threads = number(stage, "threads_per_row", DEFAULT_THREADS.get(stage.operation.name, 32)) * number(stage, "cluster", 1)
    return -(-int(str(names["columns"])) // threads)


class _Shape(tuple[int, ...]):
    """A shape as the views' texts read it."""

    def numel(self) -> int:
        """How many elements."""
        return math.prod(self)
