"""Passes tensors between worker processes as raw files: bytes plus JSON, never pickle. A list of tensors is one file.

Only `read_outputs` reads the files of a candidate, and it trusts nothing in them. The reference gives the number,
shapes and dtypes of the outputs. No link is followed: it could lead to the expected outputs, which would pass.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from workbench.records import TensorSpec
from workbench.wire import Json

Values = list[Any]  # tensors and plain scalars


def write_values(path: Path, values: Values) -> None:
    """Write a list of tensors and plain scalars to one file, which appears when it is complete.

    Its first line is JSON, with dtype, shape, strides and offset of each tensor; then come the bytes of the tensors.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    kinds = [_describe(value) if isinstance(value, torch.Tensor) else {"value": value} for value in values]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(json.dumps(kinds).encode() + b"\n")
        _write_bytes(file, tensors)
    os.replace(temporary, path)


def _describe(tensor: torch.Tensor) -> Json:
    dtype = str(tensor.dtype).removeprefix("torch.")
    strides, offset = list(tensor.stride()), tensor.storage_offset()
    return {"dtype": dtype, "shape": list(tensor.shape), "strides": strides, "offset": offset}


def _write_bytes(file: BinaryIO, tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        if flat.numel():
            flat.view(torch.uint8).numpy().tofile(file)


def read_values(path: Path) -> Values:
    """Read the values of `write_values`, with the same strides and offsets into their memory.

    Raises `OSError` if the file is a link, and `ValueError` if it is too short.
    """
    out: Values = []
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        for entry in json.loads(file.readline()):
            out.append(entry["value"] if "value" in entry else _read_tensor(file, entry))
    return out


def _read_tensor(file: BinaryIO, entry: Json) -> torch.Tensor:
    dtype, shape, strides = getattr(torch, entry["dtype"]), tuple(entry["shape"]), tuple(entry["strides"])
    tensor, offset = torch.empty(shape, dtype=dtype), int(entry["offset"])  # aligned to 64 bytes, as torch allocates
    if tensor.numel():
        read = file.readinto(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))  # type: ignore[attr-defined]
        if read != tensor.nbytes:
            raise ValueError(f"a tensor has {read} bytes, not {tensor.nbytes}")
        if tensor.stride() != strides or offset:
            size = offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
            tensor = torch.zeros(size, dtype=dtype).as_strided(shape, strides, offset).copy_(tensor)
    return tensor


def write_outputs(path: Path, tensors: Sequence[torch.Tensor]) -> None:
    """Write the bytes of tensors, one after the other, for `read_outputs`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        _write_bytes(file, tensors)


def read_outputs(root: Path, relative: str, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
    """The outputs in the file ROOT/RELATIVE of an untrusted process, contiguous, with shapes and dtypes of `specs`.

    Raises `ValueError` or `OSError` when the file is missing, has another size, or is reached through a link.
    """
    path = Path(relative)
    place = open_below(root, path.parent.as_posix())
    try:
        raw = _read_bytes(place, path.name, sum(map(_size_bytes, specs)))
    finally:
        os.close(place)
    out, at = [], 0
    for spec in specs:
        size = _size_bytes(spec)
        out.append(_as_tensor(raw[at : at + size], spec))
        at += size
    return out


def write_numbered(folder: Path, values: Mapping[int, torch.Tensor]) -> None:
    """Some tensors of a list, each as its bytes in N.bin; files of other tensors are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for n, value in values.items():
        flat = value.detach().to("cpu").contiguous().reshape(-1)
        (folder / f"{n}.bin").write_bytes(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def read_numbered(root: Path, relative: str, specs: Sequence[TensorSpec]) -> dict[int, torch.Tensor]:
    """The tensors that an untrusted process left with `write_numbered`, by number. Raises as `read_outputs`."""
    place = open_below(root, relative)
    try:
        names = set(os.listdir(place))
        return {
            n: _as_tensor(_read_bytes(place, f"{n}.bin", _size_bytes(spec)), spec)
            for n, spec in enumerate(specs)
            if f"{n}.bin" in names
        }
    finally:
        os.close(place)


def open_below(root: Path, relative: str) -> int:
    """A handle of the folder ROOT/RELATIVE, reached through no link; raises `OSError`."""
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in Path(relative).parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
    except OSError:
        os.close(place)
        raise
    return place


def _size_bytes(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64)) * int(getattr(torch, spec.dtype).itemsize)


def _as_tensor(raw: NDArray[np.uint8], spec: TensorSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if not raw.size:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.from_numpy(raw).clone().view(dtype).reshape(spec.shape)


def _read_bytes(place: int, name: str, wanted: int) -> NDArray[np.uint8]:
    """The bytes of a plain file of `wanted` bytes in the folder of the handle `place`."""
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)  # a pipe must not block the check
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size != wanted:
            raise ValueError(f"{name} holds {found.st_size} bytes, not {wanted}")
        return np.fromfile(file, dtype=np.uint8, count=wanted)
