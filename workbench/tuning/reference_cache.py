"""Keeps inputs and reference results of a tuning run's problems on the GPU between batches, while there is room."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

import torch

from workbench.executors.workers.tolerance import Tolerance, measure_tolerances
from workbench.problems import loading
from workbench.problems.reference import run_reference
from workbench.records import Case, TensorSpec
from workbench.tuning.plan import TuningPlan

SEED = 20
LARGE_BYTES = 3 << 30  # larger inputs and outputs are not kept between batches
SMALL_BYTES = 700 << 20  # up to this size of inputs and reference, the reference is in float64
CACHED_BYTES = 12 << 30  # limit of the inputs and references that one process keeps

Value: TypeAlias = object  # a tensor, or a number that forward takes


@dataclass
class Data:
    """A problem's tensors on the GPU."""

    module: ModuleType
    reference: torch.nn.Module
    inputs: list[Value]
    expected: list[torch.Tensor]
    tolerances: list[Tolerance]
    bytes: int


def size_of(spec: TensorSpec) -> int:
    """Bytes of a dense tensor."""
    return int(torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize)


class ReferenceCache:
    """Data of the problems of `plans`, by number. `case` is the name of the measured case."""

    def __init__(
        self,
        plans: list[TuningPlan],
        case: str,
        *,
        counts: Counter[str],
        clock: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self.plans, self.case, self.counts, self.clock = plans, case, counts, clock
        self.kept: OrderedDict[int, Data] = OrderedDict()

    def find_case(self, plan: TuningPlan) -> Case:
        """The measured case: full, or shrunk in a dry run."""
        return next(case for case in plan.facts.cases if case.name == self.case)

    def is_large(self, plan: TuningPlan) -> bool:
        """Whether the problem is too large to keep."""
        case = self.find_case(plan)
        return sum(map(size_of, (*case.inputs, *case.outputs))) > LARGE_BYTES

    def is_small(self, plan: TuningPlan) -> bool:
        """Whether the reference is in float64."""
        case = self.find_case(plan)
        return (
            sum(map(size_of, case.inputs)) + 8 * sum(int(torch.Size(spec.shape).numel()) for spec in case.outputs)
            < SMALL_BYTES
        )

    def get(self, number: int) -> Data:
        """Inputs and reference results of a problem. The caller holds the GPU's lock."""
        if number not in self.kept:
            with self.clock("inputs"):
                self.kept[number] = self._make(number)
                torch.cuda.synchronize()
                self.counts["inputs made"] += 1
        self.kept.move_to_end(number)
        others = [one for one in self.kept if one != number]
        while (
            sum(one.bytes for n, one in self.kept.items() if not self.is_large(self.plans[n])) > CACHED_BYTES and others
        ):
            del self.kept[others.pop(0)]
        return self.kept[number]

    def _make(self, number: int) -> Data:
        plan = self.plans[number]
        case, problem = self.find_case(plan), plan.problem
        module = loading.load_module(problem, case.settings)
        torch.manual_seed(SEED)
        reference = loading.build_model(module, "Model", problem, device="cuda")
        inputs = loading.make_inputs(module, problem, SEED + 1, "cuda")
        expected, tolerances = self._compute(plan, reference, inputs)
        tensors = [value for value in (*inputs, *expected) if isinstance(value, torch.Tensor)]
        size = sum(value.numel() * value.element_size() for value in tensors)
        return Data(module, reference, inputs, expected, tolerances, size)

    def _compute(
        self, plan: TuningPlan, model: torch.nn.Module, inputs: list[Value]
    ) -> tuple[list[torch.Tensor], list[Tolerance]]:
        """(expected outputs, those of 16-bit problems in float32; their tolerances)."""
        wide = torch.float64 if self.is_small(plan) else torch.float32
        found = run_reference(model, inputs, plan.problem.precision, seed=SEED, wide=wide)
        outputs = self.find_case(plan).outputs
        expected = [
            value.float() if spec.dtype in ("float16", "bfloat16") else value
            for value, spec in zip(found.exact, outputs, strict=True)
        ]
        return expected, measure_tolerances(found, outputs)


def set_tf32(plan: TuningPlan) -> None:
    """Allow TF32 if the problem's precision is tf32."""
    allowed = plan.problem.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def spoil(values: list[torch.Tensor], inputs: list[Value]) -> None:
    """Overwrite results, so that a kernel which writes nothing cannot return an old one from the same memory. Views of
    inputs stay.
    """
    given = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, torch.Tensor)}
    for value in values:
        if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in given:
            value.detach().fill_(float("nan") if value.is_floating_point() else -1)
