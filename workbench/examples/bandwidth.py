"""How fast can all SMs together read from L2, and each from its shared memory?

Two kernels that do nothing but read; `cutegen calibrate` times them.

L2. The data fit into L2 (CHUNK bytes for each CTA). In every pass a CTA reads the chunk of the next CTA, so that what
it reads is never in its own L1: only L2 has it. Each thread keeps UNROLL loads of 16 bytes in flight; a warp's request
is 512 contiguous bytes. What was read is added up, so that the compiler cannot leave it out, and so that the result can
be checked: over all passes every CTA reads `passes` chunks, and every chunk is read `passes` times.

Shared memory. Each CTA copies its tile there once, then its warps read 512 contiguous bytes at a time (4 wavefronts of
128 bytes, no bank conflict), a warp beginning one row further in every pass, so that the compiler cannot keep a value
in a register.

    python -m workbench.examples.bandwidth --passes 3
"""

import argparse
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import flat, launch, processors, require

THREADS = 512
WIDTH = 4  # floats of one access: 16 bytes
UNROLL = 8
TILE = THREADS * WIDTH * UNROLL  # floats that a CTA reads in one step: 64 KiB
CHUNK_STEPS = 2  # of these in a chunk of L2's kernel
ROWS = 64  # of 512 bytes in a CTA's shared memory: 32 KiB


@cute.kernel
def l2_kernel(x: cute.Tensor, sums: cute.Tensor, chunks: cutlass.Int32, passes: cutlass.Int32) -> None:
    """x (chunks * CHUNK_STEPS * TILE) float32; sums (CTAs * THREADS): what each thread read, added up."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    pieces = cute.zipped_divide(x, (WIDTH,))
    loaded = cute.make_rmem_tensor(cute.make_layout((WIDTH, UNROLL)), cutlass.Float32)
    total = cute.make_rmem_tensor(cute.make_layout(WIDTH), cutlass.Float32)
    total.fill(0.0)
    for turn in range(passes):
        start = (block + turn + 1) % chunks * (CHUNK_STEPS * UNROLL * THREADS) + thread
        for step in cutlass.range_constexpr(CHUNK_STEPS):
            for u in cutlass.range_constexpr(UNROLL):
                cute.autovec_copy(pieces[None, start + (step * UNROLL + u) * THREADS], loaded[None, u])
            for u in cutlass.range_constexpr(UNROLL):
                for e in cutlass.range_constexpr(WIDTH):
                    total[e] = total[e] + loaded[e, u]
    sums[block * THREADS + thread] = total[0] + total[1] + total[2] + total[3]


@cute.kernel
def shared_kernel(x: cute.Tensor, sums: cute.Tensor, passes: cutlass.Int32) -> None:
    """x (ROWS * 128) float32, the same for all CTAs; sums (CTAs * THREADS)."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    tile = memory.allocate_tensor(cutlass.Float32, cute.make_layout(ROWS * 128), 128)
    given, rows = cute.zipped_divide(x, (WIDTH,)), cute.zipped_divide(tile, (WIDTH,))
    for step in cutlass.range_constexpr(ROWS * 32 // THREADS):
        cute.autovec_copy(given[None, step * THREADS + thread], rows[None, step * THREADS + thread])
    cute.arch.sync_threads()
    loaded = cute.make_rmem_tensor(cute.make_layout((WIDTH, UNROLL)), cutlass.Float32)
    total = cute.make_rmem_tensor(cute.make_layout(WIDTH), cutlass.Float32)
    total.fill(0.0)
    warp, lane = thread // 32, thread % 32
    for turn in range(passes):
        first = (warp + turn) % (ROWS // UNROLL) * UNROLL
        for u in cutlass.range_constexpr(UNROLL):
            cute.autovec_copy(rows[None, (first + u) * 32 + lane], loaded[None, u])
        for u in cutlass.range_constexpr(UNROLL):
            for e in cutlass.range_constexpr(WIDTH):
                total[e] = total[e] + loaded[e, u]
    sums[block * THREADS + thread] = total[0] + total[1] + total[2] + total[3]


@cute.jit
def l2_host(
    x: cute.Tensor,
    sums: cute.Tensor,
    chunks: cutlass.Int32,
    passes: cutlass.Int32,
    ctas: cutlass.Int32,
    stream: CUstream,
) -> None:
    """Launch over `ctas` CTAs."""
    l2_kernel(x, sums, chunks, passes).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.jit
def shared_host(
    x: cute.Tensor, sums: cute.Tensor, passes: cutlass.Int32, ctas: cutlass.Int32, stream: CUstream
) -> None:
    """Launch over `ctas` CTAs."""
    shared_kernel(x, sums, passes).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


def read_l2(x: torch.Tensor, passes: int, ctas: int | None = None) -> torch.Tensor:
    """Read x from L2 and return the sums of what each thread read.

    Each of `ctas` CTAs (one per chunk by default) reads `passes` chunks of x: float32, a multiple of
    CHUNK_STEPS * TILE elements, or ValueError.
    """
    chunk = CHUNK_STEPS * TILE
    require(
        x.dtype == torch.float32 and x.numel() > 0 and x.numel() % chunk == 0,
        f"read_l2 takes float32, a multiple of {chunk} elements, not {x.numel()} of {x.dtype}",
    )
    count = ctas or x.numel() // chunk
    sums = torch.empty(count * THREADS, dtype=torch.float32, device=x.device)
    launch(
        l2_host, (flat(x), flat(sums)), (cutlass.Int32(x.numel() // chunk), cutlass.Int32(passes), cutlass.Int32(count))
    )
    return sums


def read_shared(x: torch.Tensor, passes: int, ctas: int | None = None) -> torch.Tensor:
    """Read x from shared memory and return the sums of what each thread read.

    Every warp of each of `ctas` CTAs (four per SM by default) reads UNROLL rows of x (ROWS * 128 float32, or
    ValueError), `passes` times.
    """
    require(
        x.dtype == torch.float32 and x.numel() == ROWS * 128,
        f"read_shared takes {ROWS * 128} float32, not {x.numel()} of {x.dtype}",
    )
    count = ctas or 4 * processors(x.device)
    sums = torch.empty(count * THREADS, dtype=torch.float32, device=x.device)
    launch(shared_host, (flat(x), flat(sums)), (cutlass.Int32(passes), cutlass.Int32(count)))
    return sums


def l2_bytes(ctas: int, passes: int) -> int:
    """What read_l2 reads."""
    return ctas * passes * CHUNK_STEPS * TILE * 4


def shared_bytes(ctas: int, passes: int) -> int:
    """What read_shared reads from shared memory."""
    return ctas * passes * UNROLL * THREADS * WIDTH * 4


def main(arguments: list[str] | None = None) -> None:
    """Read small integers and compare the sums with torch's, exactly."""
    parser = argparse.ArgumentParser(description="read-only kernels for L2 and shared memory")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args(arguments)
    x: Any = torch.randint(-2, 3, (3 * CHUNK_STEPS * TILE,), device="cuda").float()
    ours, exact = read_l2(x, options.passes).double().sum().item(), options.passes * x.double().sum().item()
    print(f"l2      ours {ours:g}  torch {exact:g}")
    assert ours == exact
    rows = torch.randint(-2, 3, (ROWS * 128,), device="cuda").float()
    turns = [(warp + turn) % (ROWS // UNROLL) for turn in range(options.passes) for warp in range(THREADS // 32)]
    ours, exact = (
        read_shared(rows, options.passes, 2).double().sum().item(),
        2 * rows.view(ROWS // UNROLL, -1).double().sum(1)[turns].sum().item(),
    )
    print(f"shared  ours {ours:g}  torch {exact:g}")
    assert ours == exact


if __name__ == "__main__":
    main()
