"""Passes large outputs from the candidate's process to the referee through files in memory, at gigabytes per second.

The files are made once for a run, at their full size (gpu/memory.py), and overwritten for each output. As in
exchange.py, the reader trusts nothing: the reference gives the number of bytes, no link is followed, and no file is
mapped, because the writer could truncate it. It reads a block at a time (`FileTensor`), so that no copy of the output
is held beside its reference.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
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


class FileTensor:
    """A contiguous tensor like `spec` in a file that is open as `handle`; what is asked for is read to `device`.

    A matrix of its elements is `reshape(rows, columns)`, a block of which is read by `[rows, columns]`: whole rows, or
    a part of one row. Raises `ValueError` if the file has become shorter.
    """

    def __init__(self, handle: int, spec: TensorSpec, device: str, shape: tuple[int, ...] | None = None) -> None:
        self.handle, self.spec, self.device = handle, spec, device
        self.dtype: torch.dtype = getattr(torch, spec.dtype)
        self.shape = torch.Size(spec.shape if shape is None else shape)

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def reshape(self, *shape: int) -> FileTensor:
        """The same elements in another shape."""
        return FileTensor(self.handle, self.spec, self.device, shape)

    def __getitem__(self, at: tuple[slice, slice]) -> torch.Tensor:
        """A block of a matrix, contiguous."""
        (top, bottom, _), (left, right, _) = (one.indices(size) for one, size in zip(at, self.shape, strict=True))
        high, wide, columns = bottom - top, right - left, self.shape[1]
        if high > 1 and wide < columns:
            raise ValueError("a block that is not contiguous in the file")
        return self._read(top * columns + left, high * wide).reshape(high, wide)

    def to(self, device: torch.device) -> torch.Tensor:
        """The whole tensor on a device."""
        return self._read(0, self.numel()).reshape(self.shape).to(device)

    def _read(self, first: int, count: int) -> torch.Tensor:
        made = torch.empty(count, dtype=self.dtype, device=self.device)
        flat, start = _byte_view(made), first * made.element_size()
        _copy_chunks(flat.numel(), lambda at, staging: _copy_in(flat, at, staging, self.handle, start))
        return made


@contextlib.contextmanager
def opened(root: Path, relative: str, specs: Sequence[TensorSpec], device: str) -> Iterator[list[FileTensor]]:
    """Values like `specs` in ROOT/RELATIVE, to be read during the block.

    Raises `ValueError` or `OSError` where a file is missing, has another size, or is reached through a link.
    """
    with contextlib.ExitStack() as stack:
        place = open_below(root, relative)
        stack.callback(os.close, place)
        found = []
        for n, spec in enumerate(specs):
            # a pipe must not block the check
            handle = os.open(f"{n}.bin", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
            stack.callback(os.close, handle)
            held = os.fstat(handle)
            if not stat.S_ISREG(held.st_mode) or held.st_size != spec.size_bytes:
                raise ValueError(f"{n}.bin holds {held.st_size} bytes, not {spec.size_bytes}")
            found.append(FileTensor(handle, spec, device))
        yield found


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


def _copy_in(flat: torch.Tensor, at: int, staging: torch.Tensor, handle: int, start: int) -> None:
    part = flat[at : at + CHUNK_BYTES]
    here = staging[: part.numel()]
    view, place = memoryview(here.numpy()), start + at
    while view:
        count = os.preadv(handle, [view], place)
        if count <= 0:
            raise ValueError("a file became shorter while it was read")
        view, place = view[count:], place + count
    part.copy_(here)
