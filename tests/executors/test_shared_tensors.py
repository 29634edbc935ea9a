"""Outputs through files in memory: the same bytes come out, and a file that is not what it must be is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workbench.executors.gpu import memory
from workbench.executors.jobs import shared_tensors
from workbench.executors.workers import tolerance
from workbench.records import TensorSpec


def read(root: Path, relative: str, specs: list[TensorSpec]) -> list[torch.Tensor]:
    """The whole values."""
    with shared_tensors.opened(root, relative, specs, "cpu") as values:
        return [value.to(torch.device("cpu")) for value in values]


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
        (got,) = read(tmp_path, "scratch/out", [spec(shape, dtype)])
        assert got.dtype == value.dtype and torch.equal(got, value)
        value = value.roll(1) if value.dim() else value


def test_a_transposed_output_is_carried_in_its_own_order(tmp_path: Path) -> None:
    value = torch.arange(12).reshape(3, 4).t()
    shared_tensors.write(tmp_path / "out", [value])
    assert torch.equal(read(tmp_path, "out", [spec((4, 3), "int64")])[0], value)


@pytest.mark.parametrize("block", [8, 40, 1000])
def test_a_matrix_is_read_in_the_blocks_that_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(tolerance, "BLOCK", block)  # parts of a row, rows, and all
    value = torch.arange(3 * 40).reshape(3, 2, 20)
    shared_tensors.write(tmp_path / "out", [value])
    with shared_tensors.opened(tmp_path, "out", [spec((3, 2, 20), "int64")], "cpu") as (given,):
        matrix, wanted = tolerance.as_matrix(given), tolerance.as_matrix(value)
        found = [at for at in tolerance.blocks(wanted) if torch.equal(matrix[at], wanted[at])]
    assert matrix.shape == wanted.shape == (3, 40) and len(found) == {8: 15, 40: 3, 1000: 1}[block]


def test_a_block_apart_in_the_file_is_refused(tmp_path: Path) -> None:
    shared_tensors.write(tmp_path / "out", [torch.ones(4, 4)])
    with (
        shared_tensors.opened(tmp_path, "out", [spec((4, 4))], "cpu") as (given,),
        pytest.raises(ValueError, match="not contiguous"),
    ):
        given[0:2, 0:2]


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    shared_tensors.write(tmp_path / "out", [torch.ones(1000)])
    with shared_tensors.opened(tmp_path, "out", [spec((1000,))], "cpu") as (given,):
        (tmp_path / "out" / "0.bin").write_bytes(b"")
        with pytest.raises(ValueError, match="shorter"):
            given.to(torch.device("cpu"))


def test_a_smaller_output_is_refused(tmp_path: Path) -> None:
    memory.preallocate(tmp_path / "out", [spec((8,))])
    shared_tensors.write(tmp_path / "out", [torch.ones(7)])
    with pytest.raises(ValueError, match="28 bytes, not 32"):
        read(tmp_path, "out", [spec((8,))])


@pytest.mark.parametrize("what", ["file", "folder"])
def test_no_link_is_followed(tmp_path: Path, what: str) -> None:
    shared_tensors.write(tmp_path / "secret", [torch.ones(8)])
    if what == "folder":
        (tmp_path / "out").symlink_to(tmp_path / "secret")
    else:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "0.bin").symlink_to(tmp_path / "secret" / "0.bin")
    with pytest.raises(OSError):
        read(tmp_path, "out", [spec((8,))])


@pytest.mark.parametrize(
    "dtype",
    ["float32", "bfloat16", "float16", "float64", "int64", "int8", "uint8", "bool", "float8_e4m3fn", "complex64"],
)
def test_sizes_are_those_of_torch(dtype: str) -> None:
    assert spec((3, 5), dtype).size_bytes == 15 * getattr(torch, dtype).itemsize


def test_outputs_that_do_not_fit_shared_memory_go_elsewhere() -> None:
    assert memory.choose_folder([spec((1 << 40,))]) is None
