"""cp.async: waits, groups, stages; and a tensor-core product that reads what was copied."""

import cutlass
import cutlass.cute as cute
import torch
from case import Case, numbers, views, written
from cutlass.cute.nvgpu import cpasync, warp

THREADS = 128


class Staged(Case):
    """y = x with its halves exchanged, one word a thread by cp.async."""

    correct = ("", "wait for all")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(THREADS), 16)
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(), x.element_type, num_bits_per_copy=32)
        # BUG(never_read): leaked_copy
        cute.copy(
            atom,
            cute.zipped_divide(x, (1,))[None, block * THREADS + thread],
            cute.zipped_divide(tile, (1,))[None, thread],
        )
        if cutlass.const_expr(self.variant not in ("no_commit", "wait for all")):
            cute.arch.cp_async_commit_group()
        if cutlass.const_expr(self.variant == "wait for all"):
            cute.arch.cp_async_commit_group()
            cute.arch.cp_async_wait_group(0)
        elif cutlass.const_expr(self.variant not in ("no_wait", "never_read")):
            cute.arch.cp_async_wait_group(1 if cutlass.const_expr(self.variant == "one_too_few") else 0)
        if cutlass.const_expr(self.variant != "no_barrier"):
            cute.arch.sync_threads()
        if cutlass.const_expr(self.variant == "never_read"):
            y[block * THREADS + thread] = x[block * THREADS + thread]
        else:
            # BUG(no_wait, one_too_few, no_commit): copy_in_flight
            # BUG(no_barrier): shared_race
            y[block * THREADS + thread] = tile[thread ^ 64]

    def check(self):
        x, y = numbers(2 * THREADS), written(2 * THREADS)
        self(*views(x, y))
        return y, x.view(2, 2, 64).flip(1).reshape(-1)


class Pipeline(Case):
    """A running sum over six tiles, three stages in flight, each thread adds its mirror's element."""

    correct = ("", "two stages")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        stages = 2 if cutlass.const_expr(self.variant == "two stages") else 3
        tiles = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((THREADS, stages)), 16)
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float32, num_bits_per_copy=32)
        source = cute.zipped_divide(x, (1,))
        for step in cutlass.range_constexpr(stages - 1):
            cute.copy(
                atom, source[None, step * THREADS + thread], cute.zipped_divide(tiles[None, step], (1,))[None, thread]
            )
            cute.arch.cp_async_commit_group()
        total = cutlass.Float32(0)
        for step in cutlass.range_constexpr(6):
            cute.arch.cp_async_wait_group(
                stages - 1 if cutlass.const_expr(self.variant == "wait_one_too_few") else stages - 2
            )
            if cutlass.const_expr(self.variant != "no_barrier"):
                cute.arch.sync_threads()
            here = (step + 1) % stages if cutlass.const_expr(self.variant == "wrong_stage") else step % stages
            ahead = step + stages - 1
            if cutlass.const_expr(self.variant == "refill_too_early"):
                if cutlass.const_expr(ahead < 6):
                    cute.copy(
                        atom,
                        source[None, ahead * THREADS + thread],
                        cute.zipped_divide(tiles[None, here], (1,))[None, thread],
                    )
            # BUG(wait_one_too_few, wrong_stage, refill_too_early): copy_in_flight
            # BUG(no_barrier): shared_race
            total += tiles[THREADS - 1 - thread, here]
            if cutlass.const_expr(ahead < 6 and self.variant != "refill_too_early"):
                # BUG(no_barrier): shared_race
                cute.copy(
                    atom,
                    source[None, ahead * THREADS + thread],
                    cute.zipped_divide(tiles[None, ahead % stages], (1,))[None, thread],
                )
            cute.arch.cp_async_commit_group()
        y[thread] = total

    def check(self):
        x, y = numbers(6 * THREADS), written(THREADS)
        self(*views(x, y))
        return y, x.view(6, THREADS).sum(0).flip(0)


class Wide(Case):
    """16 bytes a thread by cp.async, the tail predicated by a zero fill."""

    correct = ("", "bypassing L1")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        n = cute.size(x)
        start = cute.make_ptr(
            x.element_type,
            (x.iterator + (1 if cutlass.const_expr(self.variant == "source_misaligned") else 0)).toint(),
            cute.AddressSpace.gmem,
            assumed_align=16,
        )
        self.kernel(cute.make_tensor(start, n), y, n).launch(grid=[1, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
        mode = (
            cute.nvgpu.LoadCacheMode.GLOBAL
            if cutlass.const_expr(self.variant == "bypassing L1")
            else cute.nvgpu.LoadCacheMode.ALWAYS
        )
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(mode), cutlass.Float32, num_bits_per_copy=128)
        part, into = (
            cute.zipped_divide(cute.make_tensor(x.iterator, cute.make_layout(128)), (4,)),
            cute.zipped_divide(tile, (4,)),
        )
        limit = n + 4 if cutlass.const_expr(self.variant == "tail_not_guarded") else n
        if thread * 4 < limit:
            # BUG(tail_not_guarded): out_of_bounds
            # BUG(source_misaligned): misaligned
            # BUG(source_not_written): uninitialised
            cute.copy(atom, part[None, thread], into[None, thread])
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        for j in cutlass.range_constexpr(4):
            if j * 32 + thread < n:
                y[j * 32 + thread] = tile[j * 32 + thread]

    def check(self):
        big = written(128) if self.variant == "source_not_written" else numbers(128)
        x, y = big[:100], written(100)
        if self.variant == "tail_not_guarded":
            x = numbers(100)
        self(*views(x, align=16), *views(y))
        return y, x


class Product(Case):
    """One 16 x 8 tile on a tensor core: copies by cp.async, ldmatrix, mma.sync; k = 32 in two steps."""

    correct = ("", "bf16")
    advice = ("uncoalesced", "bank_conflict")

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        mma = cute.make_tiled_mma(warp.MmaF16BF16Op(a.element_type, cutlass.Float32, (16, 8, 16)))
        self.kernel(a, b, c, mma).launch(grid=[1, 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma):
        thread, _, _ = cute.arch.thread_idx()
        memory = cutlass.memory.SmemAllocator()
        tile_a = memory.allocate_tensor(a.element_type, cute.make_layout((16, 32), stride=(40, 1)), 16)
        tile_b = memory.allocate_tensor(b.element_type, cute.make_layout((8, 32), stride=(40, 1)), 16)
        atom = cute.make_copy_atom(cpasync.CopyG2SOp(), a.element_type, num_bits_per_copy=128)
        tiled = cute.make_tiled_copy_tv(atom, cute.make_layout((8, 4), stride=(4, 1)), cute.make_layout((1, 8)))
        own = tiled.get_slice(thread)
        from_a, into_a = own.partition_S(a), own.partition_D(tile_a)
        if cutlass.const_expr(self.variant == "lower_half_left_out"):
            cute.copy(tiled, from_a[None, 0, None], into_a[None, 0, None])
        else:
            cute.copy(tiled, from_a, into_a)
        cute.copy(tiled, own.partition_S(b), own.partition_D(tile_b))
        cute.arch.cp_async_commit_group()
        if cutlass.const_expr(self.variant != "no_wait"):
            cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        mine = mma.get_slice(thread)
        part_a, part_b = mma.make_fragment_A(mine.partition_A(tile_a)), mma.make_fragment_B(mine.partition_B(tile_b))
        part_c = mine.partition_C(c)
        totals = mma.make_fragment_C(part_c.shape)
        if cutlass.const_expr(self.variant != "totals_not_cleared"):
            totals.fill(0.0)
        load_a = cute.make_tiled_copy_A(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), a.element_type), mma)
        load_b = cute.make_tiled_copy_B(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 2), b.element_type), mma)
        view_a, view_b = load_a.get_slice(thread), load_b.get_slice(thread)
        # BUG(no_wait): copy_in_flight
        # BUG(lower_half_left_out): uninitialised
        cute.copy(load_a, view_a.partition_S(tile_a), view_a.retile(part_a))
        if cutlass.const_expr(self.variant != "b_not_loaded"):
            cute.copy(load_b, view_b.partition_S(tile_b), view_b.retile(part_b))
        cute.gemm(mma, totals, part_a, part_b, totals)  # BUG(totals_not_cleared, b_not_loaded): uninitialised_register
        cute.autovec_copy(totals, part_c)

    def check(self):
        dtype = torch.bfloat16 if self.variant == "bf16" else torch.float16
        a, b, c = numbers(16, 32, dtype=dtype), numbers(8, 32, dtype=dtype), written(16, 8)
        from cutlass.cute.runtime import from_dlpack

        self(*(from_dlpack(t, assumed_align=16) for t in (a, b, c)))
        return c, a.float() @ b.float().t()
