"""Makes CuTe DSL report more than it needs to run: the tensors of a call, and reads of unwritten register fragments.

A compiler folds undefined values into whatever suits it (a NaN, the other branch's value), so the PTX often does not
show an uninitialised fragment. Therefore `poison_fragments` fills each new fragment with values from inline assembly
that reads a PTX register which nothing writes. If the kernel writes the fragment first, the compiler drops them and the
PTX is unchanged. If not, the read stays and can be found (sanitizer/uninitialized.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TypeAlias

import cutlass.cute.runtime as cute_runtime
import cutlass.cute.tensor as cute_tensor
import torch
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm
from cutlass._mlir.dialects import cute as cute_ir
from cutlass.base_dsl import dsl, jit_executor
from cutlass.cutlass_dsl import Numeric

from workbench.emulator.execution.tensor_views import MARK, Arguments, gather_arguments, make_view

CONSTRAINTS = {16: "h", 32: "r", 64: "l"}  # inline assembly's constraint for a register, by its bits
Replace: TypeAlias = Callable[[object, str, object], object]


def watch_arguments(put: Replace, given: Callable[[Arguments], None]) -> None:
    """Call `given` with the arguments of each call of a compiled function, before it runs."""
    tensor, pointer = cute_runtime._Tensor, cute_runtime._Pointer
    make = tensor.__init__
    generate, extract = jit_executor.ExecutionArgs._generate_execution_args, dsl.BaseDSL.extract_dynamic_args

    def init(self: cute_runtime._Tensor, source: object, *args: object, **kwargs: object) -> None:
        make(self, source, *args, **kwargs)
        if isinstance(source, torch.Tensor):
            self.__dict__[MARK] = make_view(source)

    def generate_execution_args(
        self: jit_executor.ExecutionArgs, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        given(gather_arguments(self.bound_call_arguments(args, kwargs).items(), pointer, tensor))
        return generate(self, args, kwargs)

    def extract_dynamic_args(
        self: dsl.BaseDSL,
        function: Callable[..., object],
        args: tuple[object, ...],
        named: dict[str, object],
        signature: inspect.Signature,
    ) -> object:  # of a call that compiles first
        bound = signature.bind(*args, **named).arguments
        given(
            gather_arguments(
                [
                    (key, value)
                    for key, value in bound.items()
                    if _is_runtime_argument(signature.parameters[key], value)
                ],
                pointer,
                tensor,
            )
        )
        return extract(self, function, args, named, signature)

    put(tensor, "__init__", init)
    put(jit_executor.ExecutionArgs, "_generate_execution_args", generate_execution_args)
    put(dsl.BaseDSL, "extract_dynamic_args", extract_dynamic_args)


def _is_runtime_argument(parameter: inspect.Parameter, value: object) -> bool:
    """Whether an argument exists when the kernel runs: not `self`, a compile-time constant, a function or a type."""
    return parameter.name != "self" and "Constexpr" not in str(parameter.annotation) and not callable(value)


def poison_fragments(put: Replace) -> None:
    """Fill each register fragment that a kernel allocates with values from an unwritten register."""
    alloca, fragment = cute_ir.memref_alloca, cute_ir.mma_make_fragment

    @functools.wraps(alloca)
    def memref_alloca(*args: object, loc: object = None, ip: object = None, **kwargs: object) -> object:
        made = alloca(*args, loc=loc, ip=ip, **kwargs)
        _poison(made, loc, ip)
        return made

    @functools.wraps(fragment)
    def mma_make_fragment(*args: object, loc: object = None, ip: object = None, **kwargs: object) -> object:
        made = fragment(*args, loc=loc, ip=ip, **kwargs)
        _poison(made, loc, ip)
        return made

    put(cute_ir, "memref_alloca", memref_alloca)
    put(cute_ir, "mma_make_fragment", mma_make_fragment)


def _poison(made: object, loc: object, ip: object) -> None:
    tensor = made if isinstance(made, cute_tensor._Tensor) else cute_tensor._Tensor(getattr(made, "value", made))
    if not isinstance(tensor.type, cute_ir.MemRefType) or tensor.memspace != cute_tensor.AddressSpace.rmem:
        return
    kind = tensor.element_type
    value = _undefined_value(kind, loc, ip)
    if value is not None:
        tensor.fill(kind(value), loc=loc, ip=ip)


def _undefined_value(kind: type[Numeric], loc: object, ip: object) -> ir.Value | None:
    """A value of this type from a register that nothing wrote; None for types narrower than a byte."""
    bits = kind.width
    if bits not in (8, 16, 32, 64):
        return None
    held = max(bits, 16)
    text = f"{{\n\t.reg .b{held} unwritten;\n\tmov.b{held} $0, unwritten;\n\t}}"
    whole = ir.IntegerType.get_signless(held)
    value = llvm.inline_asm(
        whole,
        [],
        text,
        f"={CONSTRAINTS[held]}",
        has_side_effects=False,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    if bits < held:
        value = arith.trunci(ir.IntegerType.get_signless(bits), value, loc=loc, ip=ip)
    return value if str(kind.mlir_type).startswith("i") else arith.bitcast(kind.mlir_type, value, loc=loc, ip=ip)
