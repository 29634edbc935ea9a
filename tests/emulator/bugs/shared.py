"""Kernels that meet in shared memory: races, barriers, memory that nothing wrote, bank conflicts."""

import cutlass
import cutlass.cute as cute
import torch
from case import Case, numbers, views, written

THREADS = 128
WARPS = THREADS // 32


class ReverseTile(Case):
    """y = x reversed within each 128 elements, twice, through one tile of shared memory."""

    correct = ("", "two tiles")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        tiles = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout((THREADS, 2)), 16)
        for turn in cutlass.range_constexpr(2):
            i = turn * THREADS + thread
            at = turn if cutlass.const_expr(self.variant == "two tiles") else 0
            tiles[thread, at] = x[i]  # BUG(no_barrier_before_refill): shared_race
            if cutlass.const_expr(self.variant != "no_barrier_after_store"):
                cute.arch.sync_threads()
            y[i] = tiles[THREADS - 1 - thread, at]  # BUG(no_barrier_after_store): shared_race
            if cutlass.const_expr(self.variant not in ("no_barrier_before_refill", "two tiles")):
                cute.arch.sync_threads()

    def check(self):
        x, y = numbers(2 * THREADS), written(2 * THREADS)
        self(*views(x, y))
        return y, x.view(2, THREADS).flip(1).reshape(-1)


class Transpose(Case):
    """A 32 x 32 tile transposed through shared memory with a padded row."""

    correct = ("", "swizzled", "int")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[2, 2, 1], block=[32, 8, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        column, row, _ = cute.arch.thread_idx()
        block_x, block_y, _ = cute.arch.block_idx()
        pitch = 32 if cutlass.const_expr(self.variant in ("not_padded", "swizzled", "barrier_missing")) else 33
        tile = cutlass.memory.SmemAllocator().allocate_tensor(
            x.element_type, cute.make_layout((32, 32), stride=(pitch, 1)), 16
        )
        for part in cutlass.range_constexpr(4):
            r = part * 8 + row
            at = column ^ r if cutlass.const_expr(self.variant == "swizzled") else column
            if cutlass.const_expr(self.variant == "one_row_left_out"):
                if r < 31:
                    tile[r, at] = x[block_y * 32 + r, block_x * 32 + column]
            else:
                tile[r, at] = x[block_y * 32 + r, block_x * 32 + column]
        if cutlass.const_expr(self.variant != "barrier_missing"):
            cute.arch.sync_threads()
        for part in cutlass.range_constexpr(4):
            r = part * 8 + row
            at = column ^ r if cutlass.const_expr(self.variant == "swizzled") else r
            if cutlass.const_expr(self.variant == "past_the_tile"):
                at = r + 1
            # BUG(barrier_missing): shared_race
            # BUG(not_padded): bank_conflict
            # BUG(one_row_left_out): uninitialised
            # BUG(past_the_tile): shared_out_of_bounds
            y[block_x * 32 + r, block_y * 32 + column] = tile[column, at]

    def check(self):
        x = numbers(64, 64, dtype=torch.int32 if self.variant == "int" else torch.float32)
        y = torch.empty_like(x)
        self(*views(x, y))
        return y, x.t()


class Flags(Case):
    """Every warp writes the same place: the same value, or, as a mistake, its own number; neighbours in one word are no
    race.
    """

    correct = ("", "one writer")
    advice = ("bank_conflict",)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        memory = cutlass.memory.SmemAllocator()
        flag = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
        halves = memory.allocate_tensor(cutlass.Float16, cute.make_layout(THREADS), 16)
        if cutlass.const_expr(self.variant == "one writer"):
            if thread == 5:
                flag[0] = 7
        else:
            # BUG(each_its_own): shared_race
            flag[0] = thread // 32 if cutlass.const_expr(self.variant == "each_its_own") else 7
        halves[(thread % 32) * 4 + thread // 32] = x[thread].to(cutlass.Float16)
        cute.arch.sync_threads()
        y[thread] = halves[thread].to(cutlass.Float32) + flag[0].to(cutlass.Float32)

    def check(self):
        x, y = numbers(THREADS), written(THREADS)
        self(*views(x, y))
        return y, x.view(4, 32).t().reshape(-1) + 7


class Broadcast(Case):
    """Thread 0 reads a scalar for all."""

    @cute.jit
    def __call__(self, x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
        self.kernel(x, scale, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, scale: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        one = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(2), 16)
        if thread == 0:
            one[0] = scale[0]
        if cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        # BUG(no_barrier, wrong_slot): uninitialised
        y[thread] = x[thread] * one[1 if cutlass.const_expr(self.variant == "wrong_slot") else 0]

    def check(self):
        x, scale, y = numbers(THREADS), torch.full((1,), 3.0, device="cuda"), written(THREADS)
        self(*views(x, scale, y))
        return y, x * 3


class TreeSum(Case):
    """The sum of 128 numbers by halves."""

    correct = ("", "warp at the end")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        sums = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), 16)
        sums[thread] = x[block * THREADS + thread]
        if cutlass.const_expr(self.variant != "no_first_barrier"):
            cute.arch.sync_threads()
        for level in cutlass.range_constexpr(2 if cutlass.const_expr(self.variant == "warp at the end") else 7):
            half = THREADS >> (level + 1)
            if thread < half:
                # BUG(no_first_barrier, no_barrier_in_loop): shared_race
                sums[thread] = sums[thread] + sums[thread + half]
                if cutlass.const_expr(self.variant == "barrier_in_branch"):
                    cute.arch.sync_threads()  # BUG(barrier_in_branch): barrier_divergence
            if cutlass.const_expr(self.variant not in ("no_barrier_in_loop", "barrier_in_branch")):
                cute.arch.sync_threads()
        if cutlass.const_expr(self.variant == "warp at the end"):
            if thread < 32:
                total = cute.arch.warp_reduction_sum(sums[thread])
                if thread == 0:
                    y[block] = total
        else:
            if thread == 0:
                y[block] = sums[0]

    def check(self):
        x, y = numbers(2 * THREADS), written(2)
        self(*views(x, y))
        return y, x.view(2, THREADS).sum(1)


class WarpSums(Case):
    """Row sums with warp shuffles and one slot of shared memory a warp."""

    correct = ("", "max")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[3, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        slots = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(8), 16)
        v = x[row, thread]
        v = (
            cute.arch.warp_reduction_max(v)
            if cutlass.const_expr(self.variant == "max")
            else cute.arch.warp_reduction_sum(v)
        )
        if thread % 32 == 0:
            slots[thread // 32] = v
        if cutlass.const_expr(self.variant == "barrier_for_leaders"):
            if thread % 32 == 0:
                cute.arch.sync_threads()  # BUG(barrier_for_leaders): barrier_divergence
        elif cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        if thread == 0:
            total = slots[0]  # BUG(no_barrier): shared_race
            for warp in cutlass.range_constexpr(
                1, WARPS + 1 if cutlass.const_expr(self.variant == "one_warp_too_many") else WARPS
            ):
                other = slots[warp]  # BUG(no_barrier): shared_race # BUG(one_warp_too_many): uninitialised
                total = cute.arch.fmax(total, other) if cutlass.const_expr(self.variant == "max") else total + other
            y[row] = total

    def check(self):
        x, y = numbers(3, THREADS), written(3)
        self(*views(x, y))
        return y, x.max(1).values if self.variant == "max" else x.sum(1)


class Scan(Case):
    """Inclusive prefix sum of 128 numbers (Hillis and Steele), in place with two barriers a step, or between two
    buffers.
    """

    correct = ("", "two buffers")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        sums = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((THREADS, 2)), 16)
        sums[thread, 0] = x[thread]
        cute.arch.sync_threads()
        for level in cutlass.range_constexpr(7):
            step = 1 << level
            here = level % 2 if cutlass.const_expr(self.variant == "two buffers") else 0
            there = 1 - here if cutlass.const_expr(self.variant == "two buffers") else 0
            v = sums[thread, here]
            if thread >= step:
                v += sums[thread - step, here]  # BUG(no_barrier_after_write): shared_race
            if cutlass.const_expr(self.variant not in ("two buffers", "no_barrier_before_write")):
                cute.arch.sync_threads()
            sums[thread, there] = v  # BUG(no_barrier_before_write): shared_race
            if cutlass.const_expr(self.variant != "no_barrier_after_write"):
                cute.arch.sync_threads()
        y[thread] = sums[thread, 1 if cutlass.const_expr(self.variant == "two buffers") else 0]

    def check(self):
        x, y = numbers(THREADS), written(THREADS)
        self(*views(x, y))
        return y, x.cumsum(0)


class Histogram(Case):
    """Counts of 16 values: each warp in bins of its own, added up at the end."""

    correct = ("", "one warp")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(x)).launch(
            grid=[1, 1, 1], block=[32 if cutlass.const_expr(self.variant == "one warp") else THREADS, 1, 1]
        )

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        warp, lane = thread // 32, thread % 32
        warps = 1 if cutlass.const_expr(self.variant == "one warp") else WARPS
        bins = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout((16, warps)), 16)
        if cutlass.const_expr(self.variant != "bins_not_cleared") and lane < 16:
            bins[lane, warp] = 0
        mine = 0 if cutlass.const_expr(self.variant == "one_set_of_bins") else warp
        if cutlass.const_expr(self.variant == "one_set_of_bins"):
            cute.arch.sync_threads()
        each = n // warps
        for i in cutlass.range(each):
            if lane == 0:
                value = x[warp * each + i]
                # BUG(bins_not_cleared): uninitialised
                # BUG(one_set_of_bins): shared_race
                # BUG(value_too_large): shared_out_of_bounds
                bins[value, mine] = bins[value, mine] + 1
        if cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        if thread < 16:
            total = bins[thread, 0]
            for other in cutlass.range_constexpr(1, warps):
                total += bins[thread, other]  # BUG(no_barrier): shared_race
            y[thread] = total

    def check(self):
        x = (torch.arange(64, dtype=torch.int32) * 5 % 16).cuda()
        if self.variant == "value_too_large":
            x[63] = 16 * 1000
        y = written(16, dtype=torch.int32)
        self(*views(x, y))
        return y, torch.bincount(x, minlength=16)


class Halo(Case):
    """A sum over five neighbours from a tile with a halo of two."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(y)).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS + 4), 16)
        tile[thread] = x[block * THREADS + thread]
        if thread < (3 if cutlass.const_expr(self.variant == "halo_too_short") else 4):
            tile[THREADS + thread] = x[block * THREADS + THREADS + thread]
        if cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        total = cutlass.Float32(0)
        for near in cutlass.range_constexpr(5):
            total += tile[thread + near]  # BUG(halo_too_short): uninitialised # BUG(no_barrier): shared_race
        y[block * THREADS + thread] = total

    def check(self):
        x, y = numbers(2 * THREADS + 4), written(2 * THREADS)
        self(*views(x, y))
        return y, x.unfold(0, 5, 1).sum(1)


class Matmul(Case):
    """C = A B with 16 x 16 tiles in shared memory, one output a thread; sizes that are no multiple of the tile."""

    correct = ("", "fits")
    advice = ("uncoalesced", "bank_conflict")

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        m, n = c.shape
        self.kernel(a, b, c, m, n, a.shape[1]).launch(
            grid=[cute.ceil_div(n, 16), cute.ceil_div(m, 16), 1], block=[16, 16, 1]
        )

    @cute.kernel
    def kernel(
        self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32
    ):
        x, y, _ = cute.arch.thread_idx()
        block_n, block_m, _ = cute.arch.block_idx()
        memory = cutlass.memory.SmemAllocator()
        tile_a, tile_b = (
            memory.allocate_tensor(cutlass.Float32, cute.make_layout((16, 16)), 16),
            memory.allocate_tensor(cutlass.Float32, cute.make_layout((16, 16)), 16),
        )
        row, column = block_m * 16 + y, block_n * 16 + x
        total = cute.make_rmem_tensor(1, cutlass.Float32)
        if cutlass.const_expr(self.variant != "accumulator"):
            total[0] = 0.0
        limit = k + 1 if cutlass.const_expr(self.variant == "k_too_far") else k
        for step in cutlass.range(cute.ceil_div(k, 16)):
            part_a, part_b = cutlass.Float32(0), cutlass.Float32(0)
            if row < m and step * 16 + x < limit:
                part_a = a[row, step * 16 + x]  # BUG(k_too_far): out_of_bounds
            if column < n and step * 16 + y < k:
                part_b = b[step * 16 + y, column]
            tile_a[y, x] = part_a  # BUG(no_barrier_at_end): shared_race
            tile_b[y, x] = part_b  # BUG(no_barrier_at_end): shared_race
            if cutlass.const_expr(self.variant != "no_barrier_before"):
                cute.arch.sync_threads()
            for j in cutlass.range_constexpr(16):
                # BUG(no_barrier_before): shared_race
                # BUG(accumulator): uninitialised_register
                total[0] = total[0] + tile_a[y, j] * tile_b[j, x]
            if cutlass.const_expr(self.variant != "no_barrier_at_end"):
                cute.arch.sync_threads()
        if row < m and column < (n + 1 if cutlass.const_expr(self.variant == "column_too_far") else n):
            c[row, column] = total[0]  # BUG(column_too_far): out_of_bounds

    def check(self):
        m, n, k = (16, 32, 32) if self.variant == "fits" else (20, 18, 37)
        a, b, c = numbers(m, k), numbers(k, n), torch.zeros(m, n + 6, device="cuda")[:, :n]
        if self.variant == "k_too_far":  # a slice: the element after a row is in the storage
            a = torch.nn.functional.pad(a, (0, 3))[:, :k]
        self(*views(a, b, c))
        return c, a @ b


class Softmax(Case):
    """Softmax of a row a CTA: largest, then sum, through the same slots of shared memory."""

    correct = ("", "slots of their own")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        slots = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((WARPS, 2)), 16)
        second = 1 if cutlass.const_expr(self.variant == "slots of their own") else 0
        v = x[row, thread]
        largest = cute.arch.warp_reduction_max(v)
        if thread % 32 == 0:
            slots[thread // 32, 0] = largest
        cute.arch.sync_threads()
        for warp in cutlass.range_constexpr(WARPS):
            largest = cute.arch.fmax(largest, slots[warp, 0])
        if cutlass.const_expr(self.variant not in ("slots of their own", "slots_reused")):
            cute.arch.sync_threads()
        e = cute.math.exp(v - largest)
        part = cute.arch.warp_reduction_sum(e)
        if thread % 32 == 0:
            slots[thread // 32, second] = part  # BUG(slots_reused): shared_race
        if cutlass.const_expr(self.variant != "no_last_barrier"):
            cute.arch.sync_threads()
        total = cutlass.Float32(0)
        for warp in cutlass.range_constexpr(WARPS):
            total += slots[warp, second]  # BUG(no_last_barrier): shared_race
        y[row, thread] = e / total

    def check(self):
        x, y = numbers(2, THREADS), written(2, THREADS)
        self(*views(x, y))
        return (y - torch.softmax(x, -1)).abs() < 1e-6, torch.ones(2, THREADS, dtype=torch.bool, device="cuda")


class Moments(Case):
    """Sum and sum of squares of a row, two values a thread: the fragment of sums must be cleared."""

    advice = ("uncoalesced",)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[3, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        lane, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        sums = cute.make_rmem_tensor(2, cutlass.Float32)
        sums[0] = 0.0
        if cutlass.const_expr(self.variant != "second_sum"):
            sums[1] = 0.0
        for i in cutlass.range(cute.ceil_div(x.shape[1], 32)):
            if i * 32 + lane < x.shape[1]:
                v = x[row, i * 32 + lane]
                sums[0] = sums[0] + v
                sums[1] = sums[1] + v * v  # BUG(second_sum): uninitialised_register
        first = cute.arch.warp_reduction_sum(sums[0])
        second = cute.arch.warp_reduction_sum(sums[1])
        if lane == 0:
            y[row, 0] = first
            y[row, 1] = second

    def check(self):
        x, y = numbers(3, 70), written(3, 2)
        self(*views(x, y))
        return y, torch.stack([x.sum(1), (x * x).sum(1)], 1)


class Words(Case):
    """A vector load of shared memory at an offset that is no multiple of its width."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        room = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(132), 16)
        for j in cutlass.range_constexpr(4):
            room[j * 32 + thread] = x[j * 32 + thread]
        if thread < 4:
            room[128 + thread] = cutlass.Float32(0)
        cute.arch.sync_threads()
        first = room.iterator + (2 if cutlass.const_expr(self.variant == "shared_misaligned") else 0)
        believed = cute.make_ptr(cutlass.Float32, first.toint(), cute.AddressSpace.smem, assumed_align=16)
        part = cute.make_rmem_tensor(4, cutlass.Float32)
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32, num_bits_per_copy=128)
        # BUG(shared_misaligned): misaligned
        cute.copy(atom, cute.zipped_divide(cute.make_tensor(believed, 128), (4,))[None, thread], part)
        for j in cutlass.range_constexpr(4):
            y[j * 32 + thread] = part[j]

    def check(self):
        x, y = numbers(128), written(128)
        self(*views(x, y))
        return y, x.view(32, 4).t().reshape(-1)


class Guarded(Case):
    """Threads past the end leave early, and the rest meets at a barrier: all must reach it."""

    correct = ("", "named barrier")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(x)).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), 16)
        if thread < n:
            tile[thread] = x[thread]
            if cutlass.const_expr(self.variant == "barrier_for_some"):
                cute.arch.barrier(barrier_id=1, number_of_threads=THREADS)  # BUG(barrier_for_some): barrier_deadlock
            if cutlass.const_expr(self.variant == "named barrier"):
                cute.arch.barrier(barrier_id=1, number_of_threads=96)
        if cutlass.const_expr(self.variant == ""):
            cute.arch.sync_threads()
        if thread < n:
            y[thread] = tile[n - 1 - thread]

    def check(self):
        x, y = numbers(96), written(96)
        self(*views(x, y))
        return y, x.flip(0)
