"""Torch with a device "cuda" on a machine without one: tagged CPU memory, and functions that answer as with a GPU.

Two modes of torch do the work. The function mode sees each call with a device in it (`randn(..., device="cuda")`,
`.cuda()`, `.to("cuda")`, `.cpu()`), runs it on the CPU and tags the result. The dispatch mode sees each operation and
carries the tag from operands to results; it refuses operands on different devices, as a GPU does. `Tensor.device`,
`is_cuda` and `is_cpu` follow the tag. Tensors stay plain `torch.Tensor`s, so DLPack, `data_ptr()`, modules, parameters
and autograd work unchanged.

Not emulated: autocast("cuda") changes nothing, random numbers come from the CPU generator, `torch.compile` is not
supported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from workbench.emulator.host.device_tags import DeviceTags, find_storage
from workbench.emulator.host.dlpack import CAPTURED, mark_capsule_cuda
from workbench.emulator.host.virtual_gpu import VirtualGpu
from workbench.errors import NotEmulated

T = TypeVar("T")
R = TypeVar("R")
TorchCall: TypeAlias = Callable[..., Any]  # torch's own functions; mypy does not follow their types
Arguments: TypeAlias = tuple[Any, ...]
Options: TypeAlias = dict[str, Any]
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_MIXES = (
    "aten::copy_",
    "aten::_to_copy",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::set_",
    "aten::resize_as_",
)
_ALIASING = (torch.as_tensor, torch.asarray)  # these may return host memory


def parse_device(value: object) -> torch.device | None:
    """The torch.device of a name, a number or a torch.device; None for None. Raises torch's error for a GPU that does
    not exist.
    """
    if value is None:
        return None
    device = torch.device("cuda", value) if isinstance(value, int) else torch.device(value)
    if device.type != "cuda":
        return device
    if device.index not in (None, 0):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal {device.index} (the emulated machine has one GPU, cuda:0)"
        )
    return CUDA


class Operations(TorchDispatchMode):  # type: ignore[misc]
    """Carries tags from operands to results, and refuses operands on different devices."""

    def __init__(self, tags: DeviceTags, gpu: VirtualGpu) -> None:
        super().__init__()
        self.tags = tags
        self.gpu = gpu

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch need not load its compiler (0.9 s) to keep out of this mode, since nothing here is compiled."""
        return False

    def __torch_dispatch__(
        self, function: TorchCall, types: object, args: Arguments = (), kwargs: Options | None = None
    ) -> object:
        kwargs = dict(kwargs or {})
        asked = parse_device(kwargs.get("device"))
        if asked is not None and asked.type == "cuda":  # a default device, set in C++
            kwargs["device"] = CPU
        tensors = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
        kinds = [self.tags.kind_of(tensor) for tensor in tensors]
        on_gpu = "cuda" in kinds
        if on_gpu:
            self._check(function, tensors, kinds)
        result = function(*args, **kwargs)
        if on_gpu or asked == CUDA:
            self._tag(result, tensors)
        return result

    def _check(self, function: torch._ops.OpOverload, tensors: list[torch.Tensor], kinds: list[str | None]) -> None:
        name = function._schema.name
        if self.gpu.capturing and not function.is_view:
            raise NotEmulated(CAPTURED.format(name))
        if name in _MIXES:
            return
        if any(kind != "cuda" and tensor.dim() > 0 for tensor, kind in zip(tensors, kinds, strict=True)):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
                f" (when checking arguments of {name})"
            )

    def _tag(self, result: object, operands: list[torch.Tensor]) -> None:
        held = {storage._cdata for storage in map(find_storage, operands) if storage is not None}
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                storage = find_storage(value)
                if storage is not None and storage._cdata not in held:
                    self.tags.tag(value, "cuda")


class Functions(TorchFunctionMode):  # type: ignore[misc]
    """Rewrites every call with a device argument."""

    def __init__(self, tags: DeviceTags) -> None:
        super().__init__()
        self.tags = tags
        tensor = torch.Tensor
        self.handlers: dict[TorchCall, TorchCall] = {
            tensor.to: self._to,
            tensor.cuda: self._cuda,
            tensor.cpu: self._cpu,
            tensor.__deepcopy__: self._deepcopy,
            tensor.numpy: self._numpy,
            tensor.__array__: self._numpy,
            tensor.pin_memory: self._pin,
            tensor.is_pinned: self._is_pinned,
            tensor.get_device: self._get_device,
            tensor.record_stream: lambda *_: None,
            tensor.__dlpack__: self._dlpack,
        }

    def __torch_function__(
        self, function: TorchCall, types: object, args: Arguments = (), kwargs: Options | None = None
    ) -> object:
        kwargs = kwargs or {}
        handler = self.handlers.get(function)
        if handler is not None:
            return handler(*args, **kwargs)
        wanted = parse_device(kwargs.get("device")) if "device" in kwargs else self._default(function)
        pinned = kwargs.get("pin_memory", False)
        if wanted is None and not pinned:
            return function(*args, **kwargs)
        if wanted is not None:
            kwargs = {**kwargs, "device": CPU if wanted.type == "cuda" else wanted}
        if pinned:
            kwargs = {**kwargs, "pin_memory": False}
        result = function(*args, **kwargs)
        return self._set_device(
            result.clone() if function in _ALIASING else result, wanted or CPU, "pinned" if pinned else None
        )

    @staticmethod
    def _default(function: TorchCall) -> torch.device | None:
        from torch.utils import _device

        default = _device.CURRENT_DEVICE  # torch.set_default_device
        return (
            CUDA
            if default is not None and default.type == "cuda" and function in _device._device_constructors()
            else None
        )

    def _set_device(self, result: T, device: torch.device, kind: str | None = None) -> T:
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                if device.type == "cuda":
                    self.tags.tag(value, "cuda")
                elif kind:
                    self.tags.tag(value, kind)
                else:
                    self.tags.untag(value)
        return result

    def _is_on_gpu(self, tensor: torch.Tensor) -> bool:
        return self.tags.kind_of(tensor) == "cuda"

    def _move(
        self,
        tensor: torch.Tensor,
        device: torch.device | None,
        dtype: torch.dtype | None = None,
        copy: bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> torch.Tensor:
        moved = device is not None and (device.type == "cuda") != self._is_on_gpu(tensor)
        options = {} if memory_format is None else {"memory_format": memory_format}
        if not moved:
            return tensor.to(dtype=dtype or tensor.dtype, copy=copy, **options)
        assert device is not None
        result = tensor.to(
            device=CPU if device.type == "cuda" else device, dtype=dtype or tensor.dtype, copy=True, **options
        )
        if result.grad_fn is not None:  # the gradient goes the way back
            source = CPU if device.type == "cuda" else CUDA
            result.grad_fn.register_hook(
                lambda inputs, _: tuple(None if grad is None else self._move(grad, source) for grad in inputs)
            )
        return self._set_device(result, device)

    def _to(self, tensor: torch.Tensor, *args: object, **kwargs: Any) -> torch.Tensor:
        copy = bool(kwargs.pop("copy", False))
        other: torch.Tensor | None = kwargs.pop(
            "other", args[0] if args and isinstance(args[0], torch.Tensor) else None
        )
        if other is not None:
            return self._move(
                tensor, CUDA if self._is_on_gpu(other) else CPU, other.dtype, copy, kwargs.get("memory_format")
            )
        if args and isinstance(args[0], int):
            args = (parse_device(args[0]), *args[1:])
        device, dtype, _, memory_format = torch._C._nn._parse_to(*args[:3], **kwargs)
        return self._move(tensor, parse_device(device), dtype, copy or args[3:4] == (True,), memory_format)

    def _cuda(
        self,
        tensor: torch.Tensor,
        device: object = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> torch.Tensor:
        return self._move(tensor, parse_device("cuda" if device is None else device), memory_format=memory_format)

    def _cpu(self, tensor: torch.Tensor, memory_format: torch.memory_format | None = None) -> torch.Tensor:
        return self._move(tensor, CPU, memory_format=memory_format)

    def _deepcopy(self, tensor: torch.Tensor, memo: dict[int, object]) -> torch.Tensor:
        return self._set_device(tensor.__deepcopy__(memo), CUDA if self._is_on_gpu(tensor) else CPU)

    def _numpy(self, tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
        if self._is_on_gpu(tensor):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory"
                " first."
            )
        return tensor.numpy(*args, **kwargs) if not args else tensor.__array__(*args)

    def _pin(self, tensor: torch.Tensor, device: object = None) -> torch.Tensor:
        if self._is_on_gpu(tensor):
            raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
        return self._set_device(tensor.clone(), CPU, "pinned")

    def _is_pinned(self, tensor: torch.Tensor, device: object = None) -> bool:
        return self.tags.kind_of(tensor) == "pinned"

    def _get_device(self, tensor: torch.Tensor) -> int:
        return 0 if self._is_on_gpu(tensor) else -1

    def _dlpack(
        self,
        tensor: torch.Tensor,
        stream: Any = -1,
        max_version: Any = None,
        dl_device: object = None,
        copy: Any = None,
    ) -> Any:
        on_gpu = self._is_on_gpu(tensor)
        capsule = tensor.__dlpack__(
            stream=-1 if on_gpu else stream, max_version=max_version, dl_device=None if on_gpu else dl_device, copy=copy
        )
        if on_gpu:
            mark_capsule_cuda(capsule)
        return capsule


class StandIns(TorchFunctionMode):  # type: ignore[misc]
    """Makes on the CPU what is asked for on "cuda", where CPU tensors stand for device tensors.

    `.cuda()` and `.to("cuda")` give what they are given. Tensors still say that they are on the CPU.
    """

    def __torch_function__(
        self, function: TorchCall, types: object, args: Arguments = (), kwargs: Options | None = None
    ) -> object:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to:
            args = tuple(CPU if _is_cuda(value) else value for value in args)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        return function(*args, **kwargs)


def _is_cuda(value: object) -> bool:
    """Whether a value names a GPU."""
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


def tensor_properties(tags: DeviceTags) -> dict[str, property]:
    """`device`, `is_cuda` and `is_cpu` of torch.Tensor, which follow the tag."""
    plain = torch._C.TensorBase

    def real_device(tensor: torch.Tensor) -> torch.device:
        with torch._C.DisableTorchFunction():
            return plain.device.__get__(tensor)

    def is_on_gpu(tensor: torch.Tensor) -> bool:
        return tags.kind_of(tensor) == "cuda"

    return {
        "device": property(lambda tensor: CUDA if is_on_gpu(tensor) else real_device(tensor)),
        "is_cuda": property(is_on_gpu),
        "is_cpu": property(lambda tensor: real_device(tensor).type == "cpu" and not is_on_gpu(tensor)),
    }


def restore_modes(
    enter_modes: Callable[[], AbstractContextManager[object]], function: Callable[..., R]
) -> Callable[..., R]:
    """Wraps `function` so that it runs within `enter_modes()`.

    Torch removes its modes while it runs an operator or a backward pass; the program's own Python code in there needs
    them.
    """

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> R:
        with enter_modes():
            return function(*args, **kwargs)

    return call


def make_library_impl(enter_modes: Callable[[], AbstractContextManager[object]]) -> Callable[..., object]:
    """A `torch.library.Library.impl` that registers a CUDA kernel for the CPU too, where its tensors really are, unless
    the CPU has one already, and lets a kernel for all devices run within the modes.

    Custom operators are registered through it as well.
    """
    implement = torch.library.Library.impl

    def impl(
        self: torch.library.Library,
        op_name: str | torch._ops.OpOverload,
        fn: Callable[..., object],
        dispatch_key: str = "",
        **options: object,
    ) -> object:
        if (dispatch_key or self.dispatch_key) == "CompositeExplicitAutograd":
            fn = restore_modes(enter_modes, fn)
        result = implement(self, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else op_name._name
        if (dispatch_key or self.dispatch_key) == "CUDA" and not torch._C._dispatch_has_kernel_for_dispatch_key(
            name if "::" in name else f"{self.ns}::{name}", "CPU"
        ):
            implement(self, op_name, restore_modes(enter_modes, fn), "CPU", **options)
        return result

    return impl
