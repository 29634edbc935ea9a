"""Hopper's units on the emulator: TMA, mbarriers, wgmma, clusters; results are integers, so that every sum is exact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.emulator import EmulationFault
from workbench.emulator.hook import emulated

sys.path.insert(0, str(Path(__file__).parent / "hopper"))
from configurations import BOXES, GEMMS, matrix


def view(t: torch.Tensor, major: int) -> Any:
    from cutlass.cute.runtime import from_dlpack

    return from_dlpack(t, assumed_align=16).mark_layout_dynamic(leading_dim=major)


@pytest.mark.few(2)
@pytest.mark.parametrize(("dtype", "tile", "cluster", "shape", "majors"), GEMMS)
def test_gemm_with_tma_and_wgmma(
    dtype: torch.dtype, tile: tuple[int, int, int], cluster: int, shape: tuple[int, int, int], majors: tuple[int, int]
) -> None:
    from gemm import Gemm

    m, n, k = shape
    a, b = matrix(m, k, dtype, majors[0], 1), matrix(n, k, dtype, majors[1], 2)
    d = torch.empty((m, n), dtype=torch.int32 if dtype == torch.int8 else torch.float32)
    with emulated(arch="sm_90a", device="H200") as emulation:
        Gemm(tile, cluster)(view(a, majors[0]), view(b, majors[1]), view(d, 1))
    assert torch.equal(d.double(), a.double() @ b.double().t())
    (launch,) = emulation.launches
    steps, tiles = -(-k // tile[2]), -(-m // (tile[0] * cluster)) * cluster * -(-n // tile[1])
    assert launch.cluster == (cluster, 1, 1) and launch.total.flops == 2 * tile[0] * tile[1] * tile[2] * steps * tiles
    assert launch.total.global_write_bytes == 4 * m * n


def copied(
    shape: tuple[int, ...],
    box: tuple[int, ...],
    dtype: torch.dtype = torch.float16,
    *,
    add: bool = False,
    mistake: str = "",
) -> tuple[torch.Tensor, torch.Tensor]:
    from cutlass.cute.runtime import from_dlpack
    from tensor_copy import TensorCopy

    x = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype) % 500
    y = torch.ones(shape, dtype=dtype) if add else torch.empty(shape, dtype=dtype)
    with emulated(arch="sm_90a", device="H200"):
        TensorCopy(box, add, mistake)(
            *(
                from_dlpack(t.permute(*reversed(range(len(shape)))), assumed_align=16).mark_layout_dynamic(
                    leading_dim=0
                )
                for t in (x, y)
            )
        )
    return x, y


@pytest.mark.parametrize(("shape", "box"), BOXES)
def test_boxes_of_one_to_five_dimensions_clipped_at_the_edges(shape: tuple[int, ...], box: tuple[int, ...]) -> None:
    x, y = copied(shape, box)
    assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_a_store_that_adds(dtype: torch.dtype) -> None:
    x, y = copied((7, 72), (32, 4), dtype, add=True)
    assert torch.equal(y, x + 1)


@pytest.mark.parametrize(
    ("mistake", "kind", "said"),
    [
        ("parity", "copy_in_flight", "a TMA store reads shared memory that an asynchronous copy in flight is writing"),
        ("wait", "copy_in_flight", "copy in flight is writing"),
        ("bytes", "mbarrier_deadlock", "lacks 0 of 1 arrivals and 16 bytes in its phase of parity 0"),
        ("count", "mbarrier_deadlock", "lacks 1 of 2 arrivals"),
        ("uninitialised", "mbarrier_uninitialised", "was never initialised"),
    ],
)
def test_mistakes_with_an_mbarrier_are_named(mistake: str, kind: str, said: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        copied((7, 72), (32, 4), mistake=mistake)
    failure = caught.value.failure
    assert failure.kind == kind and said in failure.message and failure.line


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mistake", "kind", "said"),
    [
        ("wait", "copy_in_flight", "wgmma reads shared memory that an asynchronous copy in flight is writing"),
        ("fence", "proxy_fence_missing", "a TMA store reads shared memory that ordinary stores wrote"),
        ("release", "mbarrier_deadlock", "threads wait at line"),
        ("arrivals", "mbarrier_deadlock", "lacks 1 of 9 arrivals"),
    ],
)
def test_mistakes_of_a_pipeline_are_named(mistake: str, kind: str, said: str) -> None:
    from gemm import Gemm

    a, b, d = matrix(128, 320, torch.float16, 1, 1), matrix(64, 320, torch.float16, 1, 2), torch.empty((128, 64))
    with pytest.raises(EmulationFault) as caught, emulated(arch="sm_90a", device="H200"):
        Gemm((128, 64, 64), 1, mistake)(*(view(t, 1) for t in (a, b, d)))
    failure = caught.value.failure
    assert failure.kind == kind and said in failure.message and failure.line


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_wgmma_with_a_from_registers_and_b_that_threads_wrote(dtype: torch.dtype) -> None:
    from cutlass.cute.runtime import from_dlpack
    from registers import tile

    a, b, d = matrix(64, 64, dtype, 1, 1), matrix(32, 64, dtype, 1, 2), torch.empty((64, 32))
    with emulated(arch="sm_90a", device="H200"):
        tile(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)), True)
    assert torch.equal(d.double(), a.double() @ b.double().t())
    with pytest.raises(EmulationFault, match="with no proxy fence between"), emulated(arch="sm_90a", device="H200"):
        tile(*(from_dlpack(t, assumed_align=16) for t in (a, b, d)), False)


def test_the_swizzle_is_its_own_inverse_and_keeps_chunks_whole() -> None:
    import numpy as np

    from workbench.emulator.isa.sm90.descriptor import SWIZZLE_BITS, swizzle_addresses

    where = np.arange(8192)
    for mode in SWIZZLE_BITS:
        moved = swizzle_addresses(where, mode)
        assert (
            sorted(moved) == sorted(where)
            and (swizzle_addresses(moved, mode) == where).all()
            and (moved % 16 == where % 16).all()
        )
    assert swizzle_addresses(np.array([128 * 3 + 16]), 3)[0] == 128 * 3 + 16 * (1 ^ 3)
