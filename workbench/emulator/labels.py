"""Which memory stands for what: CPU storages labelled "cuda" or "pinned", and which of them are still alive.

The label sits on the storage, so views, parameters and `.data` carry it, and a tensor stays a plain `torch.Tensor`. A weak reference keeps
the storage's control block (not its data), so an address is never taken for that of a storage that died.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef


@dataclass(frozen=True, slots=True)
class Label:
    """What a storage stands for; `name` is how a report calls it."""

    kind: str  # "cuda", "pinned" or "host"
    name: str
    reference: Any
    start: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of memory that are alive."""

    start: int
    size: int
    kind: str
    name: str


class Labels:
    """Labels by storage."""

    def __init__(self) -> None:
        self._labels: dict[int, Label] = {}
        self._purge_at = 1024

    def put(self, tensor: torch.Tensor, kind: str) -> None:
        """Label the storage behind `tensor`."""
        storage = storage_of(tensor)
        if storage is None:
            return
        if len(self._labels) > self._purge_at:
            self._purge()
        self._labels[storage._cdata] = Label(kind, describe(tensor), StorageWeakRef(storage), storage.data_ptr(), storage.nbytes())

    def drop(self, tensor: torch.Tensor) -> None:
        """Take the label away: an ordinary CPU tensor again."""
        storage = storage_of(tensor)
        if storage is not None:
            self._labels.pop(storage._cdata, None)

    def kind(self, tensor: torch.Tensor) -> str | None:
        """The label's kind, None where there is none."""
        if not self._labels:
            return None
        storage = storage_of(tensor)
        label = self._labels.get(storage._cdata) if storage is not None else None
        return label.kind if label else None

    def alive(self) -> list[Range]:
        """Every labelled storage that something still holds."""
        found = []
        for label in list(self._labels.values()):
            storage = torch.UntypedStorage._new_with_weak_ptr(label.reference.cdata)
            if storage is not None:
                found.append(Range(storage.data_ptr(), storage.nbytes(), label.kind, label.name))
        return found

    def gone(self, address: int) -> str | None:
        """The name of a labelled storage that held `address` until nothing held it any more."""
        return next((label.name for label in self._labels.values() if label.start <= address < label.start + label.size and label.reference.expired()), None)

    def _purge(self) -> None:
        self._labels = {key: label for key, label in self._labels.items() if not label.reference.expired()}
        self._purge_at = 2 * len(self._labels) + 1024


def storage_of(tensor: torch.Tensor) -> Any:
    """The storage behind a tensor, past every mode; None for a tensor that has none (sparse, fake)."""
    with torch._C.DisableTorchFunction():
        try:
            return tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None


def describe(tensor: torch.Tensor) -> str:
    """`tensor[3, 4] float32`"""
    return f"tensor{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
