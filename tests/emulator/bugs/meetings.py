"""Who meets whom: CTAs through global memory, warps at named barriers, CTAs of a cluster."""

import cutlass
import cutlass.cute as cute
import torch
from case import Case, numbers, views, written

THREADS = 64


class Total(Case):
    """The sum of all elements: CTAs add to one number with atomics, or into a slot of their own."""

    correct = ("", "own slots")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[4, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        lane, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        part = cute.arch.warp_reduction_sum(x[block * 32 + lane])
        if lane == 0:
            if cutlass.const_expr(self.variant == "own slots"):
                y[block] = part
            elif cutlass.const_expr(self.variant == "not_atomic"):
                y[0] = y[0] + part  # BUG(not_atomic): global_race
            elif cutlass.const_expr(self.variant == "same_place"):
                y[0] = part + cutlass.Float32(block)  # BUG(same_place): global_race
            else:
                cute.arch.atomic_add(y.iterator.llvm_ptr, part)

    def check(self):
        x, y = numbers(128), torch.zeros(4, device="cuda")
        self(*views(x, y))
        sums = x.view(4, 32).sum(1)
        return y, sums if self.variant == "own slots" else torch.cat(
            [sums.sum().reshape(1), torch.zeros(3, device="cuda")]
        )


class Neighbours(Case):
    """Each CTA writes its part, then the next kernel reads its neighbour's; in one kernel that is a race."""

    @cute.jit
    def __call__(self, x: cute.Tensor, t: cute.Tensor, y: cute.Tensor):
        self.write(x, t, y).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])
        if cutlass.const_expr(self.variant == ""):
            self.read(t, y).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def write(self, x: cute.Tensor, t: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        t[block * THREADS + thread] = x[block * THREADS + thread] + 1  # BUG(read_in_same_kernel): global_race
        if cutlass.const_expr(self.variant == "read_in_same_kernel"):
            cute.arch.sync_threads()
            # BUG(read_in_same_kernel): global_race
            y[block * THREADS + thread] = t[(block * THREADS + thread + THREADS) % (4 * THREADS)]

    @cute.kernel
    def read(self, t: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        y[block * THREADS + thread] = t[(block * THREADS + thread + THREADS) % (4 * THREADS)]

    def check(self):
        x, t, y = numbers(256), torch.zeros(256, device="cuda"), written(256)
        self(*views(x, t, y))
        return y, x.roll(-THREADS) + 1


class InPlace(Case):
    """x reversed in place within a CTA: both of a pair are read before either is written."""

    @cute.jit
    def __call__(self, x: cute.Tensor):
        self.kernel(x).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        v = x[block * THREADS + THREADS - 1 - thread]
        if cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        x[block * THREADS + thread] = v  # BUG(no_barrier): global_race

    def check(self):
        x = numbers(2 * THREADS)
        expected = x.view(2, THREADS).flip(1).reshape(-1)
        self(*views(x))
        return x, expected


class Turns(Case):
    """A warp writes, another reads, at named barriers: one that both sides wait at, or one that the writer only arrives
    at.
    """

    correct = ("", "arrive only")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[128, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        room = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((32, 2)), 16)
        pair, lane = warp // 2, thread % 32
        for turn in cutlass.range_constexpr(2):
            if warp % 2 == 0:
                room[lane, pair] = x[turn * 64 + pair * 32 + lane] * 2  # BUG(no_barrier_after): shared_race
            if cutlass.const_expr(self.variant == "arrive only"):
                if warp % 2 == 0:
                    cute.arch.barrier_arrive(barrier_id=pair + 1, number_of_threads=64)
                else:
                    cute.arch.barrier(barrier_id=pair + 1, number_of_threads=64)
            elif cutlass.const_expr(self.variant == "wrong_barrier"):
                cute.arch.barrier(barrier_id=(warp + 1) // 2 + 1, number_of_threads=64 if warp % 3 else 32)
            elif cutlass.const_expr(self.variant != "no_barrier"):
                # BUG(wrong_count): barrier_deadlock
                cute.arch.barrier(
                    barrier_id=pair + 1,
                    number_of_threads=96 if cutlass.const_expr(self.variant == "wrong_count") else 64,
                )
            if warp % 2 == 1:
                y[turn * 64 + pair * 32 + lane] = room[31 - lane, pair]  # BUG(no_barrier): shared_race
            if cutlass.const_expr(self.variant != "no_barrier_after"):
                cute.arch.barrier(barrier_id=pair + 3, number_of_threads=64)

    def check(self):
        x, y = numbers(128), written(128)
        self(*views(x, y))
        return y, x.view(4, 32).flip(1).reshape(-1) * 2


class Counts(Case):
    """Counts of 16 values with atomics on shared memory."""

    correct = ("", "straight to global memory")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        bins = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout(16), 16)
        value = x[block * THREADS + thread]
        if cutlass.const_expr(self.variant == "straight to global memory"):
            cute.arch.atomic_add((y.iterator + value).llvm_ptr, cutlass.Int32(1))
        else:
            if cutlass.const_expr(self.variant != "not_cleared"):
                if thread >= 48:
                    bins[thread - 48] = 0
            if cutlass.const_expr(self.variant != "no_barrier_before"):
                cute.arch.sync_threads()
            # BUG(not_cleared): uninitialised
            # BUG(no_barrier_before): shared_race
            cute.arch.atomic_add((bins.iterator + value).llvm_ptr, cutlass.Int32(1))
            if cutlass.const_expr(self.variant != "no_barrier_after"):
                cute.arch.sync_threads()
            if thread < 16:
                cute.arch.atomic_add((y.iterator + thread).llvm_ptr, bins[thread])  # BUG(no_barrier_after): shared_race

    def check(self):
        x, y = (torch.arange(128, dtype=torch.int32) * 5 % 16).cuda(), torch.zeros(16, dtype=torch.int32, device="cuda")
        self(*views(x, y))
        return y, torch.bincount(x, minlength=16)


class Cluster(Case):
    """Two CTAs of a cluster exchange their halves through distributed shared memory."""

    arch = "sm_90a"

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1], cluster=[2, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        room = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), 16)
        room[thread] = x[rank * THREADS + thread]
        if cutlass.const_expr(self.variant == "own_barrier_only"):
            cute.arch.sync_threads()
        else:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        theirs = cute.arch.map_dsmem_ptr(room.iterator + (THREADS - 1 - thread), 1 - rank)
        # BUG(own_barrier_only): shared_race
        y[rank * THREADS + thread] = cute.arch.inline_ptx(
            "ld.shared::cluster.f32 {$w0}, [{$r0}];",
            write_only_types=[cutlass.Float32],
            read_only_args=[theirs.toint()],
        )
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

    def check(self):
        x, y = numbers(2 * THREADS), written(2 * THREADS)
        self(*views(x, y))
        return y, x.flip(0)
