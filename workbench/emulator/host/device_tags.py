"""Which memory stands for what: CPU storages tagged "cuda" or "pinned", and which of them are still alive.

The tag sits on the storage, so views, parameters and `.data` carry it, and a tensor stays a plain `torch.Tensor`. A
weak reference keeps the storage's control block (not its data), so an address is never taken for that of a storage that
died.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass(frozen=True, slots=True)
class Tag:
    """What a storage stands for; `name` is how a report calls it."""

    kind: str  # "cuda", "pinned" or "host"
    name: str
    reference: StorageWeakRef
    start: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of memory that are alive."""

    start: int
    size: int
    kind: str
    name: str


class DeviceTags:
    """DeviceTags by storage."""

    def __init__(self) -> None:
        self._tags: dict[int, Tag] = {}
        self._purge_at = 1024

    def put(self, tensor: torch.Tensor, kind: str) -> None:
        """Tag the storage behind `tensor`."""
        storage = storage_of(tensor)
        if storage is None:
            return
        if len(self._tags) > self._purge_at:
            self._purge()
        self._tags[storage._cdata] = Tag(
            kind, describe(tensor), StorageWeakRef(storage), storage.data_ptr(), storage.nbytes()
        )

    def drop(self, tensor: torch.Tensor) -> None:
        """Take the tag away: an ordinary CPU tensor again."""
        storage = storage_of(tensor)
        if storage is not None:
            self._tags.pop(storage._cdata, None)

    def kind(self, tensor: torch.Tensor) -> str | None:
        """The tag's kind, None where there is none."""
        if not self._tags:
            return None
        storage = storage_of(tensor)
        tag = self._tags.get(storage._cdata) if storage is not None else None
        return tag.kind if tag else None

    def alive(self) -> list[Range]:
        """Every tagged storage that something still holds."""
        found = []
        for tag in list(self._tags.values()):
            storage = torch.UntypedStorage._new_with_weak_ptr(tag.reference.cdata)
            if storage is not None:
                found.append(Range(storage.data_ptr(), storage.nbytes(), tag.kind, tag.name))
        return found

    def gone(self, address: int) -> str | None:
        """The name of a tagged storage that held `address` until nothing held it any more."""
        return next(
            (
                tag.name
                for tag in self._tags.values()
                if tag.start <= address < tag.start + tag.size and tag.reference.expired()
            ),
            None,
        )

    def _purge(self) -> None:
        self._tags = {key: tag for key, tag in self._tags.items() if not tag.reference.expired()}
        self._purge_at = 2 * len(self._tags) + 1024


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage behind a tensor, past every mode; None for a tensor that has none (sparse, fake)."""
    with torch._C.DisableTorchFunction():
        try:
            return tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None


def describe(tensor: torch.Tensor) -> str:
    """`tensor[3, 4] float32`"""
    return f"tensor{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
