"""Functions that CuTe DSL compiles with `--enable-tvm-ffi`: the same host code behind another calling convention
(package apache-tvm-ffi).

CuTe DSL moves such a function to a second execution engine, on which symbols cannot be overridden; here it stays on the
first, which only has functions by their packed form (one array of pointers to the arguments, then to the result), hence
the small adapter. TVM-FFI reads a torch tensor's device through a C interface of torch, past every tag, so tagged
tensors are handed over as DLPack objects that say CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
import tvm_ffi
from cutlass.cutlass_dsl import tvm_ffi_provider as provider

from workbench.emulator.host.device_tags import DeviceTags
from workbench.emulator.host.dlpack import DL_CUDA, as_cuda_capsule
from workbench.emulator.host.strictness import Replace

SAFE_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)  # TVMFFISafeCallType: handle, arguments, count, result
PACKED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _OnDevice:
    """A tensor as a DLPack object on CUDA device 0."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        capsule = torch._C._to_dlpack(self.tensor)
        as_cuda_capsule(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return DL_CUDA, 0


def _unpacked(packed: Callable[..., object]) -> ctypes._FuncPointer:
    """The function with TVM-FFI's own signature."""

    def call(handle: int | None, arguments: int | None, count: int, result: int | None) -> int:
        status = ctypes.c_int32(0)
        values = [
            ctypes.c_void_p(handle),
            ctypes.c_void_p(arguments),
            ctypes.c_int32(count),
            ctypes.c_void_p(result),
            status,
        ]
        packed((ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values]))
        return status.value

    return SAFE_CALL(call)


def divert(
    replace: Replace,
    raising: Callable[[Callable[..., object]], Callable[..., object]],
    made: Callable[[provider.TVMFFIJitCompiledFunctionBase], None],
    tags: DeviceTags | None,
) -> None:
    """Patch TVM-FFI's side of CuTe DSL; `made` hears of each compiled function. Without `tags`, every CPU tensor stands
    for a device tensor.
    """
    from_dlpack = tvm_ffi.from_dlpack

    def on_device(value: object) -> bool:
        return isinstance(value, torch.Tensor) and (tags is None or tags.kind(value) == "cuda")

    def wrapped(value: object, *args: object, **kwargs: object) -> object:
        return from_dlpack(_OnDevice(value) if on_device(value) else value, *args, **kwargs)

    def moved(value: object) -> object:
        if isinstance(value, (tuple, list)):
            items = [moved(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return wrapped(value) if on_device(value) else value

    def create(self: provider.TVMFFIJitCompiledFunctionBase) -> tvm_ffi.Function | None:
        if self.engine is None:
            return None
        made(self)
        call = _unpacked(PACKED(self.engine.raw_lookup(f"__tvm_ffi_{self.function_name}")))
        return tvm_ffi.Function.__from_extern_c__(
            ctypes.cast(call, ctypes.c_void_p).value or 0, keep_alive_object=(self.engine, call)
        )

    def converted(plain: Callable[..., object]) -> Callable[..., object]:
        def call(self: object, *args: object, **kwargs: object) -> object:
            return plain(self, *map(moved, args), **{name: moved(value) for name, value in kwargs.items()})

        return call

    replace(tvm_ffi, "from_dlpack", wrapped)
    replace(provider.TVMFFIJitCompiledFunctionBase, "_create_tvm_ffi_function", create)
    for owner in (provider.TVMFFIJitCompiledFunction, provider.TVMFFIJitCompiledFunctionWithKwargs):
        replace(owner, "__call__", raising(converted(owner.__call__)))
