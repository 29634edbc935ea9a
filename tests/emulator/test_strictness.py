"""What a launch was given, registers that nothing wrote, barriers of half a warp: on views, on PTX, and through CuTe
DSL.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack
from hypothesis import given
from hypothesis import strategies as st
from test_machine import aligned, fault, run

import workbench
from workbench.emulator import EmulationFault
from workbench.emulator.execution.tensor_views import Arguments, make_view, merge_ranges


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=3), st.integers(0, 2))
def test_a_view_holds_exactly_its_elements(dims: list[tuple[int, int]], first: int) -> None:
    """Rows with gaps between them, of up to three dimensions in any order: by hand, element by element."""
    stride, shape, strides = 1, [], []
    for extent, gap in dims:
        shape.append(extent)
        strides.append(stride)
        stride = stride * extent + gap
    storage = torch.zeros(stride + 8)
    view = make_view(storage.as_strided(shape[::-1], strides[::-1], first), "x")
    reached = {
        storage.as_strided(shape, strides, first).storage_offset()
        + sum(i * s for i, s in zip(index, strides, strict=True))
        for index in np.ndindex(*shape)
    }
    where = storage.data_ptr() + 4 * np.arange(-2, len(storage) + 2)
    assert [int(n) - 2 for n in np.nonzero(view.contains(where, 4))[0]] == sorted(reached)
    for at in sorted(reached):
        index = view.index(storage.data_ptr() + 4 * at)
        assert first + sum(i * s for i, s in zip(index, strides[::-1], strict=True)) == at and all(
            0 <= i < n for i, n in zip(index, shape[::-1], strict=True)
        )


def test_the_index_leaves_the_tensor_in_one_dimension() -> None:
    view = make_view(torch.zeros(8, 16)[2:6, 4:12], "x")
    assert (
        view.index(view.start + 4 * 8) == (0, 8)
        and view.index(view.start + 4 * 16 * 4) == (4, 0)
        and view.index(view.start - 4 * 16) == (-1, 0)
    )
    assert (
        view.describe() == "x (shape [4, 8], strides [16, 1])"
        and not view.is_dense
        and merge_ranges([view]) == [(view.low, view.high)]
    )


def test_layouts_that_overlap_are_bounded_by_their_ends() -> None:
    storage = torch.zeros(64)
    broadcast, windows = make_view(storage[8:12].expand(5, 4)), make_view(storage[8:32].unfold(0, 4, 1))
    assert broadcast.contains(np.array([broadcast.start + 12, broadcast.start + 16]), 4).tolist() == [True, False]
    assert windows.contains(np.array([windows.low, windows.high - 4, windows.high]), 4).tolist() == [True, True, False]


def test_a_storage_is_narrow_only_where_all_that_was_passed_is_known() -> None:
    x = torch.zeros(64)
    start, part = x.data_ptr(), make_view(x[:32])
    assert Arguments((part,), (), True).views_in_range(start, 256) == ((part,), True)
    for arguments in (
        Arguments((part,), (), False),
        Arguments((part,), (start + 128,), True),
        Arguments((part, make_view(x)), (), True),
    ):
        assert not arguments.views_in_range(start, 256)[1]
    assert Arguments((part,), (), True).views_in_range(start + 4096, 256) == ((), False)


@cute.kernel
def shifted_kernel(x: cute.Tensor, y: cute.Tensor, by: cute.Int32) -> None:
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread + by]


@cute.jit
def shifted(x: cute.Tensor, y: cute.Tensor, by: cute.Int32) -> None:
    shifted_kernel(x, y, by).launch(grid=[1, 1, 1], block=[32, 1, 1])


def test_a_compiled_function_and_one_called_at_once_know_their_tensors() -> None:
    with workbench.emulated(device="A100") as emulation:
        x, y = torch.arange(128.0, device="cuda"), torch.empty(32, device="cuda")
        part, whole, out = (from_dlpack(t).mark_layout_dynamic() for t in (x[32:64], x, y))
        compiled = cute.compile(shifted, part, out, 0)
        for call in (shifted, compiled):
            call(part, out, 0)
            assert torch.equal(y, x[32:64])
            with pytest.raises(
                EmulationFault,
                match=r"inside its storage: byte 256 of tensor\[128\] float32 \(512 bytes\), "
                r"index \[32\] of x \(shape \[32\], strides \[1\]\)",
            ):
                call(part, out, 1)
            call(whole, out, 64)
            assert torch.equal(y, x[64:96])
        assert [finding.kind for finding in emulation.findings if finding.severity == "error"] == ["out_of_bounds"] * 2


WRITES = "st.global.u32 [%rd3], %r9;"


@pytest.mark.parametrize(
    "body",
    [
        WRITES,
        f"mov.u32 %r8, %r7;\nadd.u32 %r9, %r8, %r2;\n{WRITES}",
        f"setp.lt.u32 %p1, %r2, 16;\n@%p1 mov.u32 %r9, 1;\n{WRITES}",
        f"mov.u32 %r9, 0;\nsetp.eq.u32 %p1, %r8, 1;\n@%p1 {WRITES}",
        f"mov.u32 %r9, 0;\nst.shared.u32 [sm], %r8;\nld.shared.u32 %r9, [sm];\n{WRITES}",
        f"shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1;\n{WRITES}",
        f"and.b32 %r9, %r8, 255;\n{WRITES}",
        f"setp.lt.u32 %p1, %r2, 31;\nselp.b32 %r9, %r2, %r8, %p1;\n{WRITES}",
        f"mov.u32 %r9, 0;\nadd.u32 %r7, %r8, 4;\nld.shared.u32 %r6, [%r7];\n{WRITES}",
    ],
)
def test_a_register_that_nothing_wrote_is_found_where_it_matters(body: str) -> None:
    assert fault(body, aligned(32)).failure.kind == "uninitialised_register"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"add.u32 %r8, %r7, %r2;\nmov.u32 %r9, 3;\n{WRITES}", lambda n: 3 + 0 * n),
        (f"and.b32 %r9, %r8, 0;\n{WRITES}", lambda n: 0 * n),
        (f"setp.lt.u32 %p1, %r2, 99;\nselp.b32 %r9, %r2, %r8, %p1;\n{WRITES}", lambda n: n),
        (
            f"mov.u32 %r9, 7;\nsetp.lt.u32 %p1, %r2, 16;\n@%p1 bra on;\nadd.u32 %r8, %r8, 1;\non:\n{WRITES}",
            lambda n: 7 + 0 * n,
        ),
        (
            "mov.u32 %r9, 7;\nsetp.ge.u32 %p1, %r2, 16;\n@%p1 mov.u32 %r8, 5;\n@%p1 st.global.u32 [%rd3], %r8;",
            lambda n: np.where(n < 16, 0, 5),
        ),
        (f"st.shared.u32 [sm], %r8;\nst.shared.u32 [sm], %r3;\nld.shared.u32 %r9, [sm];\n{WRITES}", lambda n: 0 * n),
        (f"shl.b32 %r7, %r8, 16;\nand.b32 %r6, %r7, 65535;\nor.b32 %r9, %r6, %r2;\n{WRITES}", lambda n: n),
        (
            f"mov.u32 %r9, 0;\nloop:\nadd.u32 %r9, %r9, 1;\nsetp.lt.u32 %p1, %r9, 4;\n@%p1 bra loop;\n{WRITES}",
            lambda n: 4 + 0 * n,
        ),
    ],
)
def test_garbage_that_is_dropped_is_no_error(body: str, expected: Any) -> None:
    data = aligned(32)
    run(body, data)
    assert (data == expected(np.arange(32))).all()


NARROW = ".reg .b16 %rs<9>;\ncvt.u16.u32 %rs2, %r2;\nmov.b32 %r9, {%rs2, %rs3};\n"
BYTE = "cvt.u64.u32 %rd4, %r2;\nadd.s64 %rd5, %rd1, %rd4;\nst.global.b8 [%rd5], %r9;"


def test_only_the_bytes_that_are_stored_must_be_defined() -> None:
    data = aligned(32)
    run(NARROW + BYTE, data)
    assert (data.view(np.uint8)[:32] == np.arange(32)).all()
    assert fault(NARROW + WRITES, aligned(32)).failure.kind == "uninitialised_register"
    shifted = NARROW.replace("{%rs2, %rs3}", "{%rs3, %rs2}")
    assert fault(shifted + BYTE, aligned(32)).failure.kind == "uninitialised_register"


@pytest.mark.parametrize("axis", "xyz")
def test_the_number_of_clusters_is_a_special_register(axis: str) -> None:
    data = aligned(64)
    run(f"mov.u32 %r9, %nclusterid.{axis};\n{WRITES}", data, grid=2)
    assert (data == (2 if axis == "x" else 1)).all()


def test_a_barrier_that_half_a_warp_reaches_is_found() -> None:
    found = fault("setp.ge.u32 %p1, %r2, 16;\n@%p1 bra done;\nbar.sync 0;\ndone:", aligned(64), block=64)
    assert (
        found.failure.kind == "barrier_divergence"
        and "thread (16, 0, 0) of the same warp ends without reaching it" in found.failure.message
    )
    apart = fault(
        "setp.ge.u32 %p1, %r2, 16;\n@%p1 bra other;\nbar.sync 0;\nbra done;\nother:\nbar.sync 0;\ndone:",
        aligned(64),
        block=64,
    )
    assert apart.failure.kind == "barrier_divergence"
    run("setp.ge.u32 %p1, %r2, 32;\n@%p1 bra done;\nbar.sync 0;\ndone:", aligned(64), block=64)


def test_warps_come_to_one_instruction_for_barriers_of_their_own() -> None:
    pairs = "shr.u32 %r9, %r2, 6;\nbar.sync %r9, 64;\nst.global.u32 [%rd3], %r9;"
    data = aligned(128)
    run(pairs, data, block=128)
    assert (data == np.arange(128) // 64).all()
    assert fault(pairs.replace("64;", "96;"), aligned(128), block=128).failure.kind == "barrier_deadlock"


def test_addresses_of_shared_memory_wrap_at_32_bits() -> None:
    data = aligned(32)
    run(
        "mul.lo.u32 %r9, %r2, 4;\nst.shared.u32 [%r9], %r2;\nbar.sync 0;\nsub.u32 %r8, 0, %r9;\n"
        "ld.shared.u32 %r7, [%r8+124];\nst.global.u32 [%rd3], %r7;",
        data,
    )
    assert (data == 31 - np.arange(32)).all()
