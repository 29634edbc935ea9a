"""Passes tensors between worker processes as raw files: bytes plus JSON, never pickle, sizes checked before reading.

Only `read_outputs` reads the files of a candidate, and it trusts nothing in them. The reference gives the number,
shapes and dtypes of the outputs. No link is followed: it could lead to the expected outputs, which would pass.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.records import TensorSpec
from workbench.wire import Json

LIMIT_BYTES = 64 << 30
Values = list[Any]  # tensors and plain scalars


def write_tensor(path: Path, tensor: torch.Tensor) -> None:
    """Contiguous bytes in PATH.bin, dtype and shape in PATH.json (written last)."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    flat.view(torch.uint8).numpy().tofile(path.with_suffix(".bin")) if flat.numel() else path.with_suffix(
        ".bin"
    ).write_bytes(b"")
    meta = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    path.with_suffix(".json").write_text(json.dumps(meta))


def read_tensor(path: Path) -> torch.Tensor:
    """Read a tensor of `write_tensor`. Raises `ValueError` if sizes do not agree or the file is a link."""
    meta = json.loads(_read_plain_file(path.with_suffix(".json")))
    dtype = getattr(torch, meta["dtype"])
    count = int(np.prod(meta["shape"], dtype=np.int64)) if meta["shape"] else 1
    size = path.with_suffix(".bin").lstat().st_size
    if size != count * dtype.itemsize or size > LIMIT_BYTES:
        raise ValueError(f"{path.name} holds {size} bytes, not {count * dtype.itemsize}")
    if not count:
        return torch.empty(meta["shape"], dtype=dtype)
    raw = np.fromfile(path.with_suffix(".bin"), dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(meta["shape"]).clone()  # aligned to 64 bytes, as torch allocates


def _read_plain_file(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle) as file:
        return file.read(1 << 20)


def write_values(folder: Path, values: Values) -> None:
    """A list of tensors and plain scalars as files in `folder`; `list.json` is written last."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds: list[Json] = []
    for n, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            write_tensor(folder / f"{n}", value)
            kinds.append({"tensor": n, "strides": list(value.stride()), "offset": value.storage_offset()})
        else:
            kinds.append({"value": value})
    (folder / "list.tmp").write_text(json.dumps(kinds))
    os.replace(folder / "list.tmp", folder / "list.json")


def read_values(folder: Path) -> Values:
    """Read the values of `write_values`, with the same strides and offsets into their memory."""
    out: Values = []
    for entry in json.loads((folder / "list.json").read_text()):
        if "value" in entry:
            out.append(entry["value"])
            continue
        tensor = read_tensor(folder / str(entry["tensor"]))
        strides, offset = tuple(entry["strides"]), int(entry["offset"])
        if (tensor.stride() != strides or offset) and tensor.numel():
            size = offset + 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
            laid_out = torch.zeros(size, dtype=tensor.dtype).as_strided(tuple(tensor.shape), strides, offset)
            tensor = laid_out.copy_(tensor)
        out.append(tensor)
    return out


def read_outputs(root: Path, relative: str, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
    """The outputs that an untrusted process left below `root`, contiguous, with the shapes and dtypes of `specs`.

    Raises `ValueError` or `OSError` when a file is missing, has another size, or is reached through a link.
    """
    place = open_below(root, relative)
    try:
        return [_read_output(place, f"{n}.bin", spec) for n, spec in enumerate(specs)]
    finally:
        os.close(place)


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
        return {n: _read_output(place, f"{n}.bin", spec) for n, spec in enumerate(specs) if f"{n}.bin" in names}
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


def _read_output(place: int, name: str, spec: TensorSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    wanted = int(np.prod(spec.shape, dtype=np.int64)) * int(dtype.itemsize)
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)  # a pipe must not block the check
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size != wanted:
            raise ValueError(f"{name} holds {found.st_size} bytes, not {wanted}")
        if not wanted:
            return torch.empty(spec.shape, dtype=dtype)
        raw = np.fromfile(file, dtype=np.uint8, count=wanted)
    return torch.from_numpy(raw).view(dtype).reshape(spec.shape)
