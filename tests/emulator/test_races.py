"""Races in shared and global memory, missing waits, deadlocks: each planted one is found on its line, and the same
kernel without it is not suspected.
"""

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
    """Every warp writes the same place: the same value, or, as a mistake, its own number; then neighbours in
    one word.
    """

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
        cute.copy(
            atom,
            cute.zipped_divide(x, (1,))[None, block * THREADS + thread],
            cute.zipped_divide(tile, (1,))[None, thread],
        )
        cute.arch.cp_async_commit_group()
        if cutlass.const_expr(self.mistake != "wait"):
            cute.arch.cp_async_wait_group(1 if cutlass.const_expr(self.mistake == "one too few") else 0)
        if cutlass.const_expr(self.mistake != "barrier"):
            cute.arch.sync_threads()
        y[block * THREADS + thread] = tile[thread ^ 64]  # load


class Named:
    """Two warps write a tile, two others read it, around a named barrier; every warp goes twice round, so that the tile
    is also overwritten.
    """

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(64), 16)
        for turn in cutlass.range_constexpr(2):
            if thread < 64:
                if cutlass.const_expr(turn and self.mistake != "empty"):
                    cute.arch.barrier(barrier_id=2, number_of_threads=THREADS)
                tile[thread] = x[64 * turn + thread]  # write
                if cutlass.const_expr(self.mistake != "full"):
                    cute.arch.barrier_arrive(
                        barrier_id=1, number_of_threads=160 if cutlass.const_expr(self.mistake == "count") else THREADS
                    )
            else:
                if cutlass.const_expr(self.mistake != "full"):
                    cute.arch.barrier(  # wait
                        barrier_id=1, number_of_threads=160 if cutlass.const_expr(self.mistake == "count") else THREADS
                    )
                y[64 * turn + thread - 64] = tile[127 - thread]  # read
                if cutlass.const_expr(not turn and self.mistake != "empty"):
                    cute.arch.barrier_arrive(barrier_id=2, number_of_threads=THREADS)


class Phases:
    """One warp fills a tile for the others, with an mbarrier to say that it is full and one to say that it is empty."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        memory = cutlass.memory.SmemAllocator()
        full, empty = memory.allocate_array(cutlass.Int64), memory.allocate_array(cutlass.Int64)
        tile = memory.allocate_tensor(x.element_type, cute.make_layout(32), 16)
        if thread == 0:
            cute.arch.mbarrier_init(full, 32)  # init
            cute.arch.mbarrier_init(empty, 96)
        cute.arch.mbarrier_init_fence()
        if cutlass.const_expr(self.mistake != "init"):
            cute.arch.sync_threads()
        for turn in cutlass.range_constexpr(4):
            if thread < 32:
                if cutlass.const_expr(turn > 0 and self.mistake != "empty"):
                    cute.arch.mbarrier_wait(empty, turn - 1 & 1)  # turn
                tile[thread] = x[32 * turn + thread]  # write
                cute.arch.mbarrier_arrive(full)
            else:
                if cutlass.const_expr(self.mistake != "full"):
                    cute.arch.mbarrier_wait(  # use
                        full, {"parity": turn + 1, "same parity": 0}.get(self.mistake, turn) & 1
                    )
                y[96 * turn + thread - 32] = tile[thread % 32]  # read
                cute.arch.mbarrier_arrive(empty)  # release


class Neighbours:
    """Global memory: each CTA writes its own elements (`mistake`: all CTAs the same ones, or it reads a neighbour's in
    place), then reverses them within the CTA.
    """

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        own = block * THREADS + thread
        y[256] = 7.0  # the same everywhere
        if cutlass.const_expr(self.mistake == "same elements"):
            y[thread] = x[own] + block  # all
        y[own] = x[own]  # own
        if cutlass.const_expr(self.mistake == "in place"):
            y[own] = y[(own + THREADS) % 256] + 1  # neighbour
        if cutlass.const_expr(self.mistake != "barrier"):
            cute.arch.sync_threads()
        value = y[block * THREADS + 127 - thread]  # reverse
        cute.arch.sync_threads()
        y[own] = value


class SplitK:
    """CTA 0 leaves half of a sum in y[256:384] and raises a flag, y[0] as an integer; CTA 1 waits for it and adds its
    own half.
    """

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, flag: cute.Tensor) -> None:
        self.kernel(x, y, flag).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, flag: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        half = x[block * THREADS + thread]
        if block == 0:
            y[256 + thread] = half  # left
            cute.arch.fence_acq_rel_gpu()
            if cutlass.const_expr(self.mistake != "barrier before"):
                cute.arch.sync_threads()
            if thread == 0:
                cute.arch.atomic_add(flag.iterator, cutlass.Int32(1))
        else:
            if cutlass.const_expr(self.mistake != "flag"):
                if thread == 0:
                    while cute.arch.load(flag.iterator, cutlass.Int32, sem="acquire", scope="gpu") == 0:
                        pass
            if cutlass.const_expr(self.mistake != "barrier after"):
                cute.arch.sync_threads()
            y[thread] = half + y[256 + thread]  # read


class LastBlock:
    """Each CTA leaves 128 partial sums; the one that counts last, by an atomic counter, adds them up. `mistake`: the
    first one does.
    """

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, counter: cute.Tensor) -> None:
        self.kernel(x, y, counter).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, counter: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        ticket = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
        y[128 + block * THREADS + thread] = x[block * THREADS + thread] * 2  # partial
        cute.arch.fence_acq_rel_gpu()
        if cutlass.const_expr(self.mistake != "barrier"):
            cute.arch.sync_threads()
        if thread == 0:
            ticket[0] = cute.arch.atomic_add(counter.iterator, cutlass.Int32(1))
        cute.arch.sync_threads()
        if ticket[0] == (0 if cutlass.const_expr(self.mistake == "first") else 3):
            total = x.element_type(0)
            for other in cutlass.range_constexpr(4):
                total += y[128 + other * THREADS + (thread ^ 64)]  # sum
            y[thread] = total
            counter[0] = 0


class Cluster:
    """y = x with the CTAs of a cluster of two swapped, through each other's shared memory."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor) -> None:
        self.kernel(x, y).launch(grid=[4, 1, 1], block=[THREADS, 1, 1], cluster=[2, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        rank = cute.arch.block_idx_in_cluster()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(THREADS), 16)
        for turn in cutlass.range_constexpr(2):
            tile[thread] = x[block * THREADS + thread] + turn  # write
            cute.arch.sync_threads()
            if cutlass.const_expr(self.mistake != "before"):
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()
            theirs = cute.arch.map_dsmem_ptr(tile.iterator + thread, 1 - rank)
            y[block * THREADS + thread] = (
                cute.arch.inline_ptx(  # read
                    "ld.shared::cluster.f32 {$w0}, [{$r0}];",
                    write_only_types=[cutlass.Float32],
                    read_only_args=[theirs.toint()],
                )
                - turn
            )
            if cutlass.const_expr(self.mistake == "one side"):
                if rank == 0:
                    cute.arch.cluster_arrive()
                    cute.arch.cluster_wait()  # meet
                else:
                    cute.arch.barrier(barrier_id=3, number_of_threads=160)  # wait
            elif cutlass.const_expr(self.mistake != "after"):
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()


def run(kernel: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(512, dtype=torch.float32) % 64
    y = torch.empty_like(x)
    with emulated(arch="sm_80"):
        kernel(*(from_dlpack(t, assumed_align=16).mark_layout_dynamic() for t in (x, y)))
    return x, y


def run_together(kernel: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on Hopper, with a larger y, and an integer that counts or flags where the kernel takes one."""
    x, y, counter = torch.arange(512, dtype=torch.float32), torch.zeros(1024), torch.zeros(1, dtype=torch.int32)
    with emulated(arch="sm_90a", device="H200") as emulation:
        kernel(
            *(
                from_dlpack(t, assumed_align=16).mark_layout_dynamic()
                for t in (x, y, counter)[: 3 if isinstance(kernel, SplitK | LastBlock) else 2]
            )
        )
    assert not [
        finding
        for launch in emulation.launches
        for finding in launch.findings
        if finding.severity == "error" or "race" in finding.kind
    ]
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


@pytest.mark.parametrize(
    ("kernel", "mistake", "kind", "mark", "said"),
    [
        (Reverse, "after", "shared_race", "load", ", is read by thread"),
        (Reverse, "before", "shared_race", "store", ", is overwritten by thread"),
        (Flags, "same place", "shared_race", "flag", "writes at the same time"),
        (Staged, "wait", "copy_in_flight", "load", "that an asynchronous copy in flight is writing"),
        (Staged, "one too few", "copy_in_flight", "load", "in flight"),
        (Staged, "barrier", "shared_race", "load", ", is read by thread"),
    ],
)
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
            cute.copy(
                atom,
                cute.zipped_divide(x, (1,))[None, block * THREADS + thread],
                cute.zipped_divide(tile, (1,))[None, thread],
            )
            cute.arch.cp_async_commit_group()

    x = torch.zeros(512)
    with emulated(arch="sm_80") as emulation:
        Leaked()(*(from_dlpack(t, assumed_align=16).mark_layout_dynamic() for t in (x, torch.empty_like(x))))
    assert [(finding.kind, finding.severity) for finding in emulation.launches[0].findings] == [
        ("leaked_copy", "advice")
    ]


def test_kernels_that_meet_in_other_ways_are_not_suspected() -> None:
    x, y = run_together(Named())
    assert torch.equal(y[:128], x[:128].view(2, 64).flip(1).reshape(-1))
    x, y = run_together(Phases())
    assert torch.equal(y[:384].view(4, 3, 32), x[:128].view(4, 1, 32).expand(4, 3, 32))
    x, y = run_together(Neighbours())
    assert torch.equal(y[:256], x[:256].view(2, 128).flip(1).reshape(-1)) and y[256] == 7
    x, y = run_together(SplitK())
    assert torch.equal(y[:128], x[:128] + x[128:256])
    x, y = run_together(LastBlock())
    assert torch.equal(y[:128].view(2, 64).flip(0).reshape(-1), x.view(4, 128).sum(0) * 2)
    x, y = run_together(Cluster())
    assert torch.equal(y[:512].view(2, 2, 128).flip(1).reshape(-1), x)


@pytest.mark.parametrize(
    ("kernel", "mistake", "kind", "mark", "other", "said"),
    [
        (
            Named,
            "full",
            "shared_race",
            "read",
            "write",
            "wrote at line {other}, with no barrier between, is read by thread (64, 0, 0)",
        ),
        (
            Named,
            "empty",
            "shared_race",
            "write",
            "read",
            "read at line {other}, with no barrier between, is overwritten",
        ),
        (Phases, "full", "shared_race", "read", "write", "wrote at line {other}"),
        (Phases, "empty", "shared_race", "write", "read", "read at line {other}"),
        (
            Phases,
            "init",
            "shared_race",
            "use",
            "init",
            "initialised at line {other}, with no barrier between, is used as an mbarrier",
        ),
        (
            Neighbours,
            "same elements",
            "global_race",
            "all",
            "all",
            "byte 0 of tensor[1024] float32 (4096 bytes), index [0] of y (shape [1024], strides "
            "[1]), which thread (0, 0, 0) of block (1, 0, 0) writes at the same time",
        ),
        (
            Neighbours,
            "in place",
            "global_race",
            "neighbour",
            "own",
            "byte 512 of tensor[1024] float32 (4096 bytes), index [128] of y (shape [1024], "
            "strides [1]), which thread (0, 0, 0) of block (1, 0, 0) wrote at line {other}, "
            "with nothing to order the two, is read by thread (0, 0, 0) of block (0, 0, 0)",
        ),
        (Neighbours, "barrier", "global_race", "reverse", "own", "of block (0, 0, 0) wrote at line {other}"),
        (SplitK, "flag", "global_race", "read", "left", "of block (0, 0, 0) wrote at line {other}"),
        (SplitK, "barrier before", "global_race", "read", "left", "wrote at line {other}"),
        (SplitK, "barrier after", "global_race", "read", "left", "wrote at line {other}"),
        (LastBlock, "first", "global_race", "sum", "partial", "of block (1, 0, 0) wrote at line {other}"),
        (LastBlock, "barrier", "global_race", "sum", "partial", "wrote at line {other}"),
        (
            Cluster,
            "before",
            "shared_race",
            "read",
            "write",
            "of shared memory of block (1, 0, 0), which thread (0, 0, 0) of block (1, 0, 0) wrote at line {other}",
        ),
        (Cluster, "after", "shared_race", "write", "read", "of block (1, 0, 0) read at line {other}"),
    ],
)
def test_a_race_is_found_on_its_line_and_names_the_other(
    kernel: Any, mistake: str, kind: str, mark: str, other: str, said: str
) -> None:
    with pytest.raises(EmulationFault) as caught:
        run_together(kernel(mistake))
    failure, finding = caught.value.failure, caught.value.finding
    assert (
        (failure.kind, failure.line) == (kind, line(kernel, mark))
        and said.format(other=line(kernel, other)) in failure.message
        and failure.hint
    )
    assert (
        finding is not None and finding.block is not None and finding.thread is not None and finding.address is not None
    )


@pytest.mark.parametrize(
    ("kernel", "mistake", "kind", "said"),
    [
        (
            Named,
            "count",
            "barrier_deadlock",
            (
                "64 threads wait at line {wait} for barrier 1, where 128 of 160 threads have arrived",
                "for barrier 2, where 64 of 128 threads have arrived",
            ),
        ),
        (
            Phases,
            "parity",
            "mbarrier_deadlock",
            (
                "96 threads wait at line {use} for the mbarrier at offset 0, which lacks 32 of "
                "32 arrivals in its phase of parity 1",
                "32 threads wait at line {turn} for the mbarrier at offset 8",
            ),
        ),
        (Phases, "same parity", "mbarrier_deadlock", ("32 threads wait at line {turn} for the mbarrier at offset 8",)),
        (
            Cluster,
            "one side",
            "barrier_deadlock",
            (
                "128 threads of block (0, 0, 0) wait at line {meet} for the cluster barrier, where "
                "128 of 256 threads have arrived",
                "128 threads of block (1, 0, 0) wait at line {wait} for barrier 3, where 128 of "
                "160 threads have arrived",
            ),
        ),
    ],
)
def test_a_deadlock_lists_who_waits_for_what(kernel: Any, mistake: str, kind: str, said: tuple[str, ...]) -> None:
    with pytest.raises(EmulationFault) as caught:
        run_together(kernel(mistake))
    failure = caught.value.failure
    places = {
        mark: line(kernel, mark)
        for mark in {"Named": ("wait",), "Phases": ("use", "turn"), "Cluster": ("wait", "meet")}[kernel.__name__]
    }
    assert failure.kind == kind and all(part.format(**places) in failure.message for part in said) and failure.hint, (
        failure.message
    )
