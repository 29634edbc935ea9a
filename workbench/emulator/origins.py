"""Follows which memory was written in sight: by kernels, or by operations of torch that a mode sees.

What numpy, another thread, a custom operator or native code wrote has no mark, or bytes that its mark does not have. It
counts where a kernel reads it or forward returns it, so that work done there does not pass as a kernel's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from zlib import crc32

import torch
from torch.utils._pytree import tree_leaves

SMALL = 64  # bytes that may come from anywhere: numbers
# taken before a candidate is imported, which could replace them
_storage, _numel, _element_size = torch.Tensor.untyped_storage, torch.Tensor.numel, torch.Tensor.element_size
LARGE = 256 << 20  # bytes of a storage beyond which it is not followed
REPLACING = ("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_")


class Origins:
    """The marks of all storages that were written in sight, with a checksum of what they held then.

    `note` is told of the bytes that a kernel read, or forward returned, of a storage that was not, with a checksum of
    what it held: what is the same with other inputs, such as a table of offsets, is no result.
    """

    def __init__(self, note: Callable[[int, int], None]) -> None:
        self._note = note
        self._marks: dict[int, tuple[int, int]] = {}  # address -> size, checksum
        self._counted: set[int] = set()  # addresses in this call

    def begin_call(self, given: Iterable[object]) -> None:
        """Mark what a call is given: inputs, parameters and buffers."""
        self._counted.clear()
        for value in given:
            if isinstance(value, torch.Tensor):
                self.mark(*storage_range(value))

    def mark(self, start: int, size: int) -> None:
        """Note that a storage was written in sight."""
        if 0 < size <= LARGE:
            self._marks[start] = size, _checksum(start, size)

    def is_in_sight(self, start: int, size: int) -> bool:
        """Whether all that a storage holds was written in sight."""
        if size <= SMALL or size > LARGE:
            return True
        mark = self._marks.get(start)
        return mark is not None and mark[0] == size and mark[1] == _checksum(start, size)

    @contextmanager
    def follow_operation(
        self, function: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], made: list[object]
    ) -> Iterator[None]:
        """Mark what an operation of torch writes, unless it reads something that was written out of sight. `made` gets
        its result.
        """
        if function.namespace != "aten":  # it may hold code of the candidate
            yield
            return
        read = {storage_range(value) for value in _tensors((args, kwargs))}
        targets = _list_targets(function, args, kwargs)
        replaced = {storage_range(value) for value in targets if _is_replaced(function, value)}
        is_seen = all(self.is_in_sight(*one) for one in read - replaced)
        yield
        written = {storage_range(value) for value in _tensors(made)} - read
        for start, size in written | {storage_range(value) for value in targets}:
            if is_seen:
                self.mark(start, size)
            else:
                self._marks.pop(start, None)

    @contextmanager
    def follow_launch(self, reached: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Mark the storages that a launch reached and changed; those out of sight that it did not change it only read.

        `reached` are their addresses and sizes.
        """
        unseen = {one: _checksum(*one) for one in reached if not self.is_in_sight(*one)}
        yield
        for one in reached:
            if one not in unseen or unseen[one] != _checksum(*one):
                self.mark(*one)
            else:
                self._count(*one, unseen[one])

    def check_results(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the results that were not written in sight."""
        for tensor in tensors:
            start, size = storage_range(tensor)
            if not self.is_in_sight(start, size):
                self._count(start, _numel(tensor) * _element_size(tensor), _checksum(start, size))

    def _count(self, start: int, size: int, checksum: int) -> None:
        if start not in self._counted:
            self._counted.add(start)
            self._note(size, checksum)


def storage_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and size in bytes of the whole storage behind a tensor; (0, 0) if it has none."""
    try:
        storage = _storage(tensor)
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):  # sparse, fake
        return 0, 0


def _tensors(values: object) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def _list_targets(
    function: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]
) -> list[torch.Tensor]:
    """The tensors that an operation changes in place."""
    if not function._schema.is_mutable:
        return []
    known = function._schema.arguments
    named = {**dict(zip((one.name for one in known), args, strict=False)), **kwargs}
    return _tensors([named.get(one.name) for one in known if one.alias_info is not None and one.alias_info.is_write])


def _is_replaced(function: torch._ops.OpOverload, target: torch.Tensor) -> bool:
    """Whether nothing is left of what the storage of a target held."""
    whole = _numel(target) * _element_size(target) >= storage_range(target)[1]
    name = function._schema.name.split("::")[-1]
    return whole and (name in REPLACING or function._overloadname == "out")


def _checksum(start: int, size: int) -> int:
    return crc32((ctypes.c_uint8 * size).from_address(start))
