"""Tags CPU storages as "cuda", "pinned" or "host" memory, and knows which of them are alive.

The tag sits on the storage, so views, parameters and `.data` carry it, and a tensor stays a plain `torch.Tensor`. A
weak reference keeps the storage's control block (not its data). So a new storage at the address of a dead one is not
taken for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass(frozen=True, slots=True)
class Tag:
    """The kind of memory that a storage stands for; reports call it `name`."""

    kind: str  # "cuda", "pinned" or "host"
    name: str
    reference: StorageWeakRef
    start: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class TaggedRange:
    """A byte range of live tagged memory, which stays alive as long as this record."""

    start: int
    size: int
    kind: str
    name: str
    identity: int  # of the storage: another one at the same address has another
    storage: torch.UntypedStorage


class DeviceTags:
    """The tags of all storages."""

    def __init__(self) -> None:
        self._tags: dict[int, Tag] = {}
        self._purge_at = 1024

    def tag(self, tensor: torch.Tensor, kind: str) -> None:
        """Tag the storage behind `tensor`."""
        storage = find_storage(tensor)
        if storage is None:
            return
        if len(self._tags) > self._purge_at:
            self.drop_freed()
        self._tags[storage._cdata] = Tag(
            kind, describe_tensor(tensor), StorageWeakRef(storage), storage.data_ptr(), storage.nbytes()
        )

    def untag(self, tensor: torch.Tensor) -> None:
        """Remove the tag: the tensor is an ordinary CPU tensor again."""
        storage = find_storage(tensor)
        if storage is not None:
            self._tags.pop(storage._cdata, None)

    def kind_of(self, tensor: torch.Tensor) -> str | None:
        """The kind of the tag, None without one."""
        if not self._tags:
            return None
        storage = find_storage(tensor)
        tag = self._tags.get(storage._cdata) if storage is not None else None
        return tag.kind if tag else None

    def alive_ranges(self) -> list[TaggedRange]:
        """The memory of every tagged storage that is still alive."""
        found = []
        for identity, tag in list(self._tags.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(tag.reference.cdata)
            if storage is not None:
                found.append(TaggedRange(storage.data_ptr(), storage.nbytes(), tag.kind, tag.name, identity, storage))
        return found

    def freed_name(self, address: int) -> str | None:
        """The name of a tagged storage that held `address` and has been freed."""
        return next(
            (
                tag.name
                for tag in self._tags.values()
                if tag.start <= address < tag.start + tag.size and tag.reference.expired()
            ),
            None,
        )

    def drop_freed(self) -> None:
        """Forget the tags of storages that have been freed."""
        self._tags = {key: tag for key, tag in self._tags.items() if not tag.reference.expired()}
        self._purge_at = 2 * len(self._tags) + 1024


def find_storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage behind a tensor, without any torch mode; None for a tensor that has none (sparse, fake)."""
    with torch._C.DisableTorchFunction():
        try:
            return tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None


def describe_tensor(tensor: torch.Tensor) -> str:
    """`tensor[3, 4] float32`"""
    return f"tensor{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
