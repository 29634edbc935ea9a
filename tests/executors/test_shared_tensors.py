"""Outputs through files in memory: the same bytes come out, and a file that is not what it must be is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workbench.executors.gpu import memory
from workbench.executors.jobs import shared_tensors
from workbench.records import TensorSpec


def spec(shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name="", shape=shape, dtype=dtype, strides=())


@pytest.mark.parametrize("chunk", [64, 1 << 20])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1000, 3), "float32"),
        ((7,), "bfloat16"),
        ((), "float32"),
        ((0, 4), "float32"),
        ((33, 5), "int64"),
        ((9,), "bool"),
    ],
)
def test_what_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, shape: tuple[int, ...], dtype: str
) -> None:
    monkeypatch.setattr(shared_tensors, "CHUNK_BYTES", chunk)  # several threads, a last chunk that is not full
    value = (torch.randn(shape) * 100).to(getattr(torch, dtype))
    memory.preallocate(tmp_path / "scratch" / "out", [spec(shape, dtype)])
    for _ in range(2):  # the file is written over
        shared_tensors.write(tmp_path / "scratch" / "out", [value])
        (got,) = shared_tensors.read(tmp_path, "scratch/out", [spec(shape, dtype)], "cpu")
        assert got.dtype == value.dtype and torch.equal(got, value)
        value = value.roll(1) if value.dim() else value


def test_a_transposed_output_is_carried_in_its_own_order(tmp_path: Path) -> None:
    value = torch.arange(12).reshape(3, 4).t()
    shared_tensors.write(tmp_path / "out", [value])
    assert torch.equal(shared_tensors.read(tmp_path, "out", [spec((4, 3), "int64")], "cpu")[0], value)


def test_a_smaller_output_is_refused(tmp_path: Path) -> None:
    memory.preallocate(tmp_path / "out", [spec((8,))])
    shared_tensors.write(tmp_path / "out", [torch.ones(7)])
    with pytest.raises(ValueError, match="28 bytes, not 32"):
        shared_tensors.read(tmp_path, "out", [spec((8,))], "cpu")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_no_link_is_followed(tmp_path: Path, what: str) -> None:
    shared_tensors.write(tmp_path / "secret", [torch.ones(8)])
    if what == "folder":
        (tmp_path / "out").symlink_to(tmp_path / "secret")
    else:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "0.bin").symlink_to(tmp_path / "secret" / "0.bin")
    with pytest.raises(OSError):
        shared_tensors.read(tmp_path, "out", [spec((8,))], "cpu")


@pytest.mark.parametrize(
    "dtype",
    ["float32", "bfloat16", "float16", "float64", "int64", "int8", "uint8", "bool", "float8_e4m3fn", "complex64"],
)
def test_sizes_are_those_of_torch(dtype: str) -> None:
    assert spec((3, 5), dtype).size_bytes == 15 * getattr(torch, dtype).itemsize


def test_outputs_that_do_not_fit_shared_memory_go_elsewhere() -> None:
    assert memory.choose_folder([spec((1 << 40,))]) is None
