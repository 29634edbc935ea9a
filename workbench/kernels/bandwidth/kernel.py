"""Kernels that only read float32, from L2 or from shared memory, and add up what they read.

The sums keep the compiler from leaving out the loads, and show that the right elements were read.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.static import Static


@cute.jit
def add_loaded(cfg: Static, total: cute.Tensor, loaded: cute.Tensor):
    """Add the loaded vectors to the thread's `width` sums."""
    for u in cutlass.range_constexpr(cfg.unroll):
        for e in cutlass.range_constexpr(cfg.width):
            total[e] = total[e] + loaded[e, u]


@cute.kernel
def l2_kernel(cfg: Static, x: cute.Tensor, sums: cute.Tensor, chunks: cutlass.Int32, passes: cutlass.Int32):
    """x (chunks * elements of a chunk) float32; sums (CTAs * threads): what each thread read, added up.

    In every pass a CTA reads the chunk of the next CTA, so that what it reads is never in its own L1.
    """
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    pieces = cute.zipped_divide(x, (cfg.width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((cfg.width, cfg.unroll)), cutlass.Float32)
    total = cute.make_rmem_tensor(cute.make_layout(cfg.width), cutlass.Float32)
    total.fill(0.0)
    for turn in range(passes):
        start = (block + turn + 1) % chunks * cfg.vectors + thread
        for step in cutlass.range_constexpr(cfg.steps):
            for u in cutlass.range_constexpr(cfg.unroll):
                cute.autovec_copy(pieces[None, start + (step * cfg.unroll + u) * cfg.threads], loaded[None, u])
            add_loaded(cfg, total, loaded)
    sums[block * cfg.threads + thread] = total[0] + total[1] + total[2] + total[3]


@cute.kernel
def shared_kernel(cfg: Static, x: cute.Tensor, sums: cute.Tensor, passes: cutlass.Int32):
    """x (rows * 128) float32, the same for all CTAs; sums (CTAs * threads).

    A warp reads 512 contiguous bytes at a time, and begins one group of rows further in every pass, so that the
    compiler cannot keep a value in a register.
    """
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    smem = cutlass.memory.SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(cfg.rows * 128), 128)
    given, rows = cute.zipped_divide(x, (cfg.width,)), cute.zipped_divide(tile, (cfg.width,))
    for step in cutlass.range_constexpr(cfg.rows * 32 // cfg.threads):
        cute.autovec_copy(given[None, step * cfg.threads + thread], rows[None, step * cfg.threads + thread])
    cute.arch.sync_threads()
    loaded = cute.make_rmem_tensor(cute.make_layout((cfg.width, cfg.unroll)), cutlass.Float32)
    total = cute.make_rmem_tensor(cute.make_layout(cfg.width), cutlass.Float32)
    total.fill(0.0)
    warp, lane = thread // 32, thread % 32
    for turn in range(passes):
        first = (warp + turn) % (cfg.rows // cfg.unroll) * cfg.unroll
        for u in cutlass.range_constexpr(cfg.unroll):
            cute.autovec_copy(rows[None, (first + u) * 32 + lane], loaded[None, u])
        add_loaded(cfg, total, loaded)
    sums[block * cfg.threads + thread] = total[0] + total[1] + total[2] + total[3]


@cute.jit
def launch_l2(
    cfg: Static,
    x: cute.Tensor,
    sums: cute.Tensor,
    chunks: cutlass.Int32,
    passes: cutlass.Int32,
    ctas: cutlass.Int32,
    stream: cuda.CUstream,
):
    """Launch over `ctas` CTAs."""
    l2_kernel(cfg, x, sums, chunks, passes).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)


@cute.jit
def launch_shared(
    cfg: Static,
    x: cute.Tensor,
    sums: cute.Tensor,
    passes: cutlass.Int32,
    ctas: cutlass.Int32,
    stream: cuda.CUstream,
):
    """Launch over `ctas` CTAs."""
    shared_kernel(cfg, x, sums, passes).launch(grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream)
