"""Passes large outputs from the candidate's process to the referee through files in memory, at gigabytes per second.

The files are made once for a run, at their full size (gpu/memory.py), and overwritten for each output. As in
exchange.py, the reader trusts nothing: the reference gives the number of bytes, no link is followed, and no file is
mapped, because the writer could truncate it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import open_below
from workbench.records import TensorSpec

CHUNK_BYTES = 16 << 20
THREADS = 4  # copies by one core are slower than the bus


def write(folder: Path, values: Sequence[torch.Tensor]) -> None:
    """Write each value's bytes over N.bin, cut to that length.

    Through a mapping, because several threads cannot write to one file at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for n, value in enumerate(values):
        flat = _byte_view(value.detach())
        handle = os.open(folder / f"{n}.bin", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(handle, flat.numel())
            if flat.numel():
                target = torch.frombuffer(mmap.mmap(handle, flat.numel()), dtype=torch.uint8)
                _copy_chunks(flat.numel(), partial(_copy_out, flat, target))
        finally:
            os.close(handle)


def read(root: Path, relative: str, specs: Sequence[TensorSpec], device: str) -> list[torch.Tensor]:
    """Values like `specs` on `device` from ROOT/RELATIVE, contiguous.

    Raises `ValueError` or `OSError` where a file is missing, has another size, or is reached through a link.
    """
    place = open_below(root, relative)
    try:
        return [_read_one(place, f"{n}.bin", spec, device) for n, spec in enumerate(specs)]
    finally:
        os.close(place)


def _read_one(place: int, name: str, spec: TensorSpec, device: str) -> torch.Tensor:
    size = spec.size_bytes
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)  # a pipe must not block the check
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise ValueError(f"{name} holds {found.st_size} bytes, not {size}")
        made = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        flat = _byte_view(made)
        _copy_chunks(size, lambda at, staging: _copy_in(flat, at, staging, handle))
        return made
    finally:
        os.close(handle)


def _byte_view(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8) if value.numel() else torch.empty(0, dtype=torch.uint8)


def _copy_chunks(size: int, move: Callable[[int, torch.Tensor], None]) -> None:
    """`move(first byte, staging buffer)` for every chunk, by several threads where it is worth it."""
    starts = range(0, size, CHUNK_BYTES)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # what is copied was made, and what is written over was last used, on another stream
    threads = min(THREADS, len(starts)) if len(starts) > 2 else 1
    # made here, because torch's allocator of pinned memory was seen to fail when several threads began with it at once
    staging = torch.empty(
        (threads, max(min(size, CHUNK_BYTES), 1)), dtype=torch.uint8, pin_memory=torch.cuda.is_initialized()
    )
    if threads == 1:
        for at in starts:
            move(at, staging[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda first: _copy_every(starts[first::threads], staging[first], move), range(threads)))


def _copy_every(starts: Sequence[int], staging: torch.Tensor, move: Callable[[int, torch.Tensor], None]) -> None:
    with torch.cuda.stream(torch.cuda.Stream()) if torch.cuda.is_initialized() else contextlib.nullcontext():
        for at in starts:
            move(at, staging)


def _copy_out(flat: torch.Tensor, target: torch.Tensor, at: int, staging: torch.Tensor) -> None:
    part = flat[at : at + CHUNK_BYTES]
    here = staging[: part.numel()]
    here.copy_(part)
    target[at : at + part.numel()].copy_(here)


def _copy_in(flat: torch.Tensor, at: int, staging: torch.Tensor, handle: int) -> None:
    part = flat[at : at + CHUNK_BYTES]
    here = staging[: part.numel()]
    view, place = memoryview(here.numpy()), at
    while view:
        count = os.preadv(handle, [view], place)
        if count <= 0:
            raise ValueError("a file became shorter while it was read")
        view, place = view[count:], place + count
    part.copy_(here)
