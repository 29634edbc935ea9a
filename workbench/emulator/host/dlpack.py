"""Torch tensors under emulation: DLPack capsules marked as CUDA, storage ranges, and memory that nothing has written
yet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.emulator.arrays import Array
from workbench.emulator.origins import Origins, storage_range
from workbench.errors import NotEmulated

DEVICE_TYPE_OFFSET = 8  # DLTensor: void* data; DLDevice {int32 device_type; int32 device_id}
DL_CUDA = 2
EMPTY = (
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::empty",
)
CAPTURED = (
    "a torch operation ({}) inside a CUDA graph capture: only CuTe DSL launches are captured; run it outside the graph"
)


def mark_capsule_cuda(capsule: object) -> None:
    """Mark the DLPack capsule of a CPU tensor as CUDA memory, so that CuTe DSL gives it the global address space."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = get_name(capsule)
    address = get(capsule, name)
    # DLManagedTensorVersioned starts with a version (8 bytes), manager context, deleter and flags before its DLTensor.
    start = address + (32 if name == b"dltensor_versioned" else 0)
    ctypes.cast(start + DEVICE_TYPE_OFFSET, ctypes.POINTER(ctypes.c_int32))[0] = DL_CUDA


class AllocationWatch(TorchDispatchMode):  # type: ignore[misc]
    """Watches torch.empty and its relatives: fills their memory with poison (NaN or the largest integer), and treats it
    as unwritten until a kernel or torch writes it.

    While a graph is captured (`capturing` is not empty), only allocations and views are possible.
    """

    def __init__(self) -> None:
        super().__init__()
        self.capturing: Mapping[int, object] = {}
        self.origins: Origins | None = None
        self.shadows: dict[int, tuple[StorageWeakRef, Array]] = {}  # by the address of the storage

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch need not load its compiler (0.9 s) to keep out of this mode, since nothing here is compiled."""
        return False

    def __torch_dispatch__(
        self,
        function: torch._ops.OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        name = function._schema.name
        if self.capturing and name not in EMPTY and not function.is_view:
            raise NotEmulated(CAPTURED.format(name))
        if self.origins is None:
            return self._run(function, args, kwargs or {})
        made: list[object] = []
        with self.origins.follow_operation(function, args, kwargs or {}, made):
            made.append(self._run(function, args, kwargs or {}))
        return made[0]

    def _run(self, function: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        name, result = function._schema.name, function(*args, **kwargs)
        if name in EMPTY and isinstance(result, torch.Tensor) and result.device.type == "cpu":
            self._poison(result)
            return result
        if self.shadows:
            for argument, value in zip(function._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.Tensor):
                    self.shadows.pop(value.untyped_storage().data_ptr(), None)
            if isinstance(result, torch.Tensor) and name not in _VIEWS and not _is_view(result, args):
                self.shadows.pop(result.untyped_storage().data_ptr(), None)
        return result

    def _poison(self, tensor: torch.Tensor) -> None:
        start, size = storage_range(tensor)
        if not size:
            return
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
        raw[:] = 0xFF if tensor.dtype.is_floating_point else 0x7F  # all ones is a NaN in every float format
        self.shadows[start] = (StorageWeakRef(tensor.untyped_storage()), np.zeros(size, dtype=np.uint8))

    def written_shadow(self, start: int, size: int) -> Array | None:
        """The per-byte shadow of the storage of `size` bytes at `start`, None if it was written from the start.

        A storage that was made in another way may lie where a freed one was.
        """
        storage, shadow = self.shadows.get(start, (None, None))
        return shadow if storage and not storage.expired() and shadow is not None and len(shadow) == size else None

    def count_unwritten_bytes(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's bytes that nothing has written. Other bytes of its storage do not count."""
        plain = torch.Tensor  # a candidate may have replaced methods of the instance
        shadow = self.written_shadow(*storage_range(tensor))
        if shadow is None or not plain.numel(tensor):
            return 0
        size = plain.element_size(tensor)
        reached = np.lib.stride_tricks.as_strided(
            shadow[plain.storage_offset(tensor) * size :],
            (*plain.size(tensor), size),
            (*(step * size for step in plain.stride(tensor)), 1),
            writeable=False,
        )
        return int(np.count_nonzero(reached == 0))


_VIEWS = (
    "aten::view",
    "aten::as_strided",
    "aten::detach",
    "aten::alias",
    "aten::t",
    "aten::transpose.int",
    "aten::slice.Tensor",
    "aten::select.int",
    "aten::unsqueeze",
    "aten::squeeze",
    "aten::expand",
    "aten::permute",
    "aten::_unsafe_view",
    "aten::reshape",
)


def _is_view(result: torch.Tensor, args: tuple[object, ...]) -> bool:
    address = result.untyped_storage().data_ptr()
    return any(isinstance(arg, torch.Tensor) and arg.untyped_storage().data_ptr() == address for arg in args)
