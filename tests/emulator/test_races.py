"""Races in shared memory and missing waits: each planted one is found on its line, and the same kernel without it is not suspected."""

from __future__ import annotations

import inspect
from typing import Any

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.emulator import EmulationFault, emulated

THREADS = 128


class Reverse:
    """y = x reversed within each 128 elements, twice, through shared memory; `mistake` leaves something out."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(THREADS), 16)
        for turn in cutlass.range_constexpr(2):
            i = (block * 2 + turn) * THREADS + thread
            tile[thread] = x[i]  # store
            if cutlass.const_expr(self.mistake != "after"):
                cute.arch.sync_threads()
            y[i] = tile[THREADS - 1 - thread]  # load
            if cutlass.const_expr(self.mistake != "before"):
                cute.arch.sync_threads()


class Flags:
    """Every warp writes the same place: the same value, or, as a mistake, its own number; then neighbours in one word."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        memory = cutlass.memory.SmemAllocator()
        flag = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
        halves = memory.allocate_tensor(cutlass.Float16, cute.make_layout(THREADS), 16)
        flag[0] = thread // 32 if cutlass.const_expr(self.mistake == "same place") else 7  # flag
        halves[(thread % 32) * 4 + thread // 32] = x[thread].to(cutlass.Float16)
        cute.arch.sync_threads()
        y[thread] = halves[thread].to(cutlass.Float32) + flag[0].to(cutlass.Float32)


class Staged:
    """y = x through cp.async: the wait, or the barrier after it, may be missing."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(THREADS), 16)
        atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyG2SOp(), x.element_type, num_bits_per_copy=32)
        cute.copy(atom, cute.zipped_divide(x, (1,))[None, block * THREADS + thread], cute.zipped_divide(tile, (1,))[None, thread])
        cute.arch.cp_async_commit_group()
        if cutlass.const_expr(self.mistake != "wait"):
            cute.arch.cp_async_wait_group(1 if cutlass.const_expr(self.mistake == "one too few") else 0)
        if cutlass.const_expr(self.mistake != "barrier"):
            cute.arch.sync_threads()
        y[block * THREADS + thread] = tile[thread ^ 64]  # load


def run(kernel: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(512, dtype=torch.float32) % 64
    y = torch.empty_like(x)
    with emulated(arch="sm_80"):
        kernel(*(from_dlpack(t, assumed_align=16).mark_layout_dynamic() for t in (x, y)))
    return x, y


def line(kernel: type, mark: str) -> int:
    """The line of a kernel that ends with this comment."""
    lines, first = inspect.getsourcelines(kernel)
    return first + next(n for n, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}"))


def test_correct_kernels_are_not_suspected() -> None:
    x, y = run(Reverse())
    assert torch.equal(y, x.view(4, 128).flip(1).reshape(-1))
    x, y = run(Flags())
    assert torch.equal(y[:128], x[:128].view(4, 32).t().reshape(-1) + 7)
    x, y = run(Staged())
    assert torch.equal(y, x.view(4, 2, 64).flip(1).reshape(-1))


@pytest.mark.parametrize(("kernel", "mistake", "kind", "mark", "said"), [
    (Reverse, "after", "shared_race", "load", "reads offset"), (Reverse, "before", "shared_race", "store", "overwrites offset"), (Flags, "same place", "shared_race", "flag", "writes at the same time"),
    (Staged, "wait", "copy_in_flight", "load", "that an asynchronous copy in flight is writing"), (Staged, "one too few", "copy_in_flight", "load", "in flight"), (Staged, "barrier", "shared_race", "load", "reads offset"),
])  # fmt: skip
def test_what_is_missing_is_found_on_its_line(kernel: Any, mistake: str, kind: str, mark: str, said: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(kernel(mistake))
    failure = caught.value.failure
    assert (failure.kind, failure.line) == (kind, line(kernel, mark)) and said in failure.message and failure.hint


def test_a_copy_that_nothing_waits_for_is_said() -> None:
    class Leaked(Staged):
        @cute.kernel
        def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
            thread, _, _ = cute.arch.thread_idx()
            block, _, _ = cute.arch.block_idx()
            tile = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(THREADS), 16)
            atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyG2SOp(), x.element_type, num_bits_per_copy=32)
            cute.copy(atom, cute.zipped_divide(x, (1,))[None, block * THREADS + thread], cute.zipped_divide(tile, (1,))[None, thread])
            cute.arch.cp_async_commit_group()

    x = torch.zeros(512)
    with emulated(arch="sm_80") as emulation:
        Leaked()(*(from_dlpack(t, assumed_align=16).mark_layout_dynamic() for t in (x, torch.empty_like(x))))
    assert [(finding.kind, finding.severity) for finding in emulation.launches[0].findings] == [("leaked_copy", "advice")]
