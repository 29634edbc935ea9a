"""Functions that CuTe DSL compiles with `--enable-tvm-ffi`: the same host code with another calling convention (package
apache-tvm-ffi).

CuTe DSL moves such a function to a second execution engine, on which symbols cannot be overridden. Here it stays on the
first one, which only has functions in packed form (one array of pointers to the arguments, then to the result); hence
the small adapter. TVM-FFI reads a torch tensor's device through a C interface of torch that ignores our tags, so tagged
tensors are passed as DLPack objects on CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
import tvm_ffi
from cutlass.base_dsl import compiler
from cutlass.cute import runtime as cute_runtime
from cutlass.cutlass_dsl import tvm_ffi_provider as provider

from workbench.emulator.execution.tensor_views import Arguments, gather_arguments
from workbench.emulator.host.device_tags import DeviceTags
from workbench.emulator.host.dlpack import DL_CUDA, mark_capsule_cuda
from workbench.emulator.host.strictness import Replace

SAFE_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)  # TVMFFISafeCallType: handle, arguments, count, result
PACKED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NO_DEVICE = "GPU Tensors"  # in CuTe DSL's message on a function of which no tensor is on the GPU, "internal error"


class _CudaTensor:
    """A tensor as a DLPack object on CUDA device 0."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        capsule = torch._C._to_dlpack(self.tensor)
        mark_capsule_cuda(capsule)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return DL_CUDA, 0


def _unpack_call(packed: Callable[..., object]) -> ctypes._FuncPointer:
    """Wraps a packed function in TVM-FFI's own signature."""

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


def _refuse_host_memory(plain: Callable[..., object]) -> Callable[..., object]:
    """Compiles as `plain` does; functions of CPU tensors alone are refused in one line."""

    def compile_function(self: compiler.CompileCallable, function: object, *args: object, **kwargs: object) -> object:
        try:
            return plain(self, function, *args, **kwargs)
        except Exception as error:
            if NO_DEVICE not in str(error):
                raise
        name = getattr(function, "__name__", "the kernel")
        raise ValueError(f'{name} takes tensors on "cuda", and none is there: move the module and its inputs to "cuda"')

    return compile_function


def patch_tvm_ffi(
    replace: Replace,
    raise_pending: Callable[[Callable[..., object]], Callable[..., object]],
    on_compile: Callable[[provider.TVMFFIJitCompiledFunctionBase], None],
    on_call: Callable[[Arguments], None],
    tags: DeviceTags,
    *,
    tagged_only: bool,
) -> None:
    """Patch TVM-FFI's side of CuTe DSL. `on_compile` gets each compiled function, `on_call` the arguments of each call.

    `tagged_only`: tensors with a tag are on the device; else every CPU tensor stands for one, and gets a tag.
    """
    from_dlpack = tvm_ffi.from_dlpack

    def is_device_tensor(value: object) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        if not tagged_only and tags.kind_of(value) is None:
            tags.tag(value, "host")
        return not tagged_only or tags.kind_of(value) == "cuda"

    def wrap(value: object, *args: object, **kwargs: object) -> object:
        return from_dlpack(_CudaTensor(value) if is_device_tensor(value) else value, *args, **kwargs)

    def wrap_nested(value: object) -> object:
        if isinstance(value, (tuple, list)):
            kind: Callable[..., object] = type(value)
            items = [wrap_nested(item) for item in value]
            return kind(*items) if hasattr(value, "_fields") else kind(items)
        return wrap(value) if is_device_tensor(value) else value

    def create(self: provider.TVMFFIJitCompiledFunctionBase) -> tvm_ffi.Function | None:
        if self.engine is None:
            return None
        on_compile(self)
        call = _unpack_call(PACKED(self.engine.raw_lookup(f"__tvm_ffi_{self.function_name}")))
        return tvm_ffi.Function.__from_extern_c__(
            ctypes.cast(call, ctypes.c_void_p).value or 0, keep_alive_object=(self.engine, call)
        )

    def wrap_arguments(plain: Callable[..., object]) -> Callable[..., object]:
        def call(self: provider.TVMFFIJitCompiledFunctionBase, *args: object, **kwargs: object) -> object:
            named = [*zip(self.execution_args._meta.all_names, args, strict=False), *kwargs.items()]
            on_call(gather_arguments(named, cute_runtime._Pointer, cute_runtime._Tensor))
            # TVM-FFI asks torch for the stream of a CUDA tensor
            with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), torch.cuda.current_stream().cuda_stream):
                return plain(
                    self, *map(wrap_nested, args), **{name: wrap_nested(value) for name, value in kwargs.items()}
                )

        return call

    def find_function(self: provider.TVMFFIJitCompiledFunctionBase) -> Callable[..., object]:
        return lambda *args: self(*args)

    if tagged_only:
        replace(compiler.CompileCallable, "_compile", _refuse_host_memory(compiler.CompileCallable._compile))
    replace(tvm_ffi, "from_dlpack", wrap)
    replace(provider.TVMFFIJitCompiledFunctionBase, "_create_tvm_ffi_function", create)
    for owner in (provider.TVMFFIJitCompiledFunction, provider.TVMFFIJitCompiledFunctionWithKwargs):
        replace(owner, "__call__", raise_pending(wrap_arguments(owner.__call__)))
    # TVM-FFI's own function of a compiled one
    replace(provider.TVMFFIJitCompiledFunctionWithKwargs, "__tvm_ffi_object__", find_function)
