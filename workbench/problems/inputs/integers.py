"""Makes the integer inputs of a case as the problem makes them, beside zeros for large floating-point ones.

So the offsets and indices of a large graph keep their order and their range, and its features take neither time nor
memory. Used in workers only: it imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from workbench.problems import loading
from workbench.problems.counting import UncompiledMode
from workbench.problems.settings import spread_ties
from workbench.records import Case, Problem, TensorSpec

LARGE_BYTES = 1 << 20  # smaller floating-point tensors are made as they are
SEED = 2
MOST_BYTES = 1 << 30  # of the integer inputs of a case; larger ones are not made


@dataclass(slots=True)
class _Unmade:
    """Zeros in place of a large tensor, and the calls that would have made it: one returns it, others change it."""

    zeros: torch.Tensor
    calls: list[Callable[[], object]]


class UnmadeFloats(UncompiledMode):
    """Large floating-point results are zeros whose memory is mapped on first use; nothing is drawn or computed.

    Those that integers or small tensors are computed from (`torch.rand(edges) < p`) are made after all, when they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unmade: dict[int, _Unmade] = {}  # by the address of the memory

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        given = kwargs or {}
        tensors = _tensors_of(args, given)
        unmade = [value for value in tensors if _address(value) in self.unmade]
        if func.is_view or func.namespace != "aten" or (tensors and not unmade):
            return func(*args, **given)

        def call() -> object:
            self._make(_tensors_of(args, given))
            return func(*args, **given)

        if func._schema.is_mutable and isinstance(args[0], torch.Tensor) and _address(args[0]) in self.unmade:
            self.unmade[_address(args[0])].calls.append(call)
            return args[0]
        made = None if func._schema.is_mutable else self._run_on_meta(func, args, given)
        if isinstance(made, torch.Tensor) and _is_large(made):
            zeros = _make_zeros(made)
            self.unmade[_address(zeros)] = _Unmade(zeros, [call])
            return zeros
        return call()

    def _make(self, tensors: list[torch.Tensor]) -> None:
        """Fill those of the tensors that are not made."""
        for tensor in tensors:
            found = self.unmade.pop(_address(tensor), None)
            if found is not None:
                first, *others = found.calls
                found.zeros.copy_(first())
                for change in others:
                    change()

    @staticmethod
    def _run_on_meta(func: torch._ops.OpOverload, args: tuple[object, ...], given: dict[str, object]) -> object:
        """The result on the meta device; None if the call has none there."""

        def convert(value: object) -> object:
            return value.to("meta") if isinstance(value, torch.Tensor) else value

        moved = {**tree_map(convert, given), **({"device": torch.device("meta")} if "device" in given else {})}
        if not any(isinstance(value, torch.Tensor) for value in tree_leaves(args)):
            moved |= {"device": torch.device("meta")}
        try:
            return func(
                *tree_map(convert, args), **{**moved, **({"pin_memory": False} if "pin_memory" in moved else {})}
            )
        except (RuntimeError, TypeError, NotImplementedError):  # results whose shape depends on values
            return None


def _tensors_of(*values: object) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _address(value: torch.Tensor) -> int:
    return int(value.untyped_storage().data_ptr())


def _is_large(value: torch.Tensor) -> bool:
    return bool(value.is_floating_point()) and value.numel() * value.element_size() >= LARGE_BYTES


def _make_zeros(like: torch.Tensor) -> torch.Tensor:
    dtype = str(like.dtype).removeprefix("torch.")
    return loading.lazy_zeros(TensorSpec(name="", shape=tuple(like.shape), dtype=dtype, strides=like.stride()))


def make_unmade_inputs(problem: Problem, case: Case, seed: int = SEED) -> list[object]:
    """`get_inputs()` at a case; large floating-point tensors are zeros. Raises what the problem's code raises."""
    module = loading.load_module(problem, spread_ties(problem, case.settings))
    loading.seed_generators(seed)
    with torch.no_grad(), UnmadeFloats():
        return loading.call_inputs(module, problem)


def fake_inputs(module: ModuleType, problem: Problem) -> list[object]:
    """`get_inputs()` on fake tensors, to be called under `FakeTensorMode`.

    Where it reads values, such as the number of edges that it drew, it runs on real ones, and their fakes are returned.
    """
    try:
        return loading.call_inputs(module, problem)
    except Exception:  # fake tensors have no values; if the code itself is wrong, it fails again
        with unset_fake_temporarily() as mode:
            loading.seed_generators(SEED)
            with UnmadeFloats():
                values = loading.call_inputs(module, problem)
        return [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in values]


def make_integer_inputs(problem: Problem, case: Case) -> dict[str, torch.Tensor]:
    """The integer inputs of a case by forward's argument; none if they are large, or not of the case's shapes."""
    kinds = [(spec, getattr(torch, spec.dtype)) for spec in case.inputs]
    integers = [spec.elements * kind.itemsize for spec, kind in kinds if not kind.is_floating_point]
    if not integers or sum(integers) > MOST_BYTES:
        return {}
    try:
        values = make_unmade_inputs(problem, case)
    except Exception:  # the person's code raises what it likes; its own error was reported when it was measured
        return {}
    return dict(_integers(values, case))


def _integers(values: list[object], case: Case) -> Iterator[tuple[str, torch.Tensor]]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    for spec, value in zip(case.inputs, tensors, strict=False):
        if not value.is_floating_point() and tuple(value.shape) == spec.shape:
            yield spec.name, value
