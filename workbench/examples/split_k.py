"""Matrix product with the depth k split over CTAs, for products with few output tiles and a large k.

d (m, n) = a (m, k) @ b (k, n), float16 or bfloat16. One CTA per 128 x 128 tile of d leaves most SMs idle when d is
small. So `splits` CTAs share a tile, each with a slice of k. Every CTA runs the usual multistage loop: 128 threads copy
64-deep tiles of a and b with cp.async, 16 bytes each, into swizzled shared memory, two tiles ahead; ldmatrix brings
fragments to registers without bank conflicts, mma.sync multiplies them and accumulates in float32. Then the slices'
partial tiles have to be added up, in one of two ways:

atomic          each CTA adds its tile to a float32 result in global memory with red.add. No workspace, but the order of
                the additions, and so the last bits, vary.
deterministic   each CTA writes its tile to a workspace, in the order of its registers (neighbouring threads side by
                side: coalesced, whatever the layout of fragments), and counts itself at the tile's semaphore. The CTA
                that counts last knows that all slices are there: it adds them in the order of the slices, so that the
                result is the same in every run, converts it and stores it. It leaves the semaphore at 0.

Where k, or the rows' pitch, is not a multiple of 8 elements, copies get narrower: 8 or 4 bytes, and for odd ones 2
bytes through registers.

    python -m workbench.examples.split_k --m 200 --n 136 --k 1001
"""

import argparse
import math
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream
from cutlass.cute.runtime import from_dlpack

from workbench.examples.launching import counters, flat, launch, processors, require
from workbench.examples.tensor_core import (
    THREADS,
    Product,
    add_atomically,
    fetch,
    multiply,
    shared_layout,
    store,
    tiled_mma,
)

STAGES = 3
DEPTH = 64  # of k per stage
LARGE, SMALL = (128, 128), (64, 64)  # tiles of d
ELEMENTS = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


@cute.kernel
def split_k_kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    d: cute.Tensor,
    partials: cute.Tensor,
    semaphores: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    per_split: cutlass.Int32,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    mma: cute.TiledMma,
    how: cutlass.Constexpr,
    tile: cutlass.Constexpr,
    a_along_k: cutlass.Constexpr,
    b_along_k: cutlass.Constexpr,
    width_a: cutlass.Constexpr,
    width_b: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
) -> None:
    """a (m, k), b (n, k), d (m, n); each CTA multiplies `per_split` tiles of k."""
    block_n, block_m, split = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    tiles_a = memory.allocate_tensor(a.element_type, layout_a, 128)
    tiles_b = memory.allocate_tensor(b.element_type, layout_b, 128)
    row, column = block_m * tile[0], block_n * tile[1]
    product = Product(mma, tiles_a, tiles_b, tile, (a_along_k, b_along_k))
    first = split * per_split
    end = min(first + per_split, (k + DEPTH - 1) // DEPTH)
    for ahead in cutlass.range(STAGES - 1, unroll=1):
        if first + ahead < end:
            fetch(a, tiles_a, ahead, row, (first + ahead) * DEPTH, m, k, tile[0], DEPTH, a_along_k, width_a)
            fetch(b, tiles_b, ahead, column, (first + ahead) * DEPTH, n, k, tile[1], DEPTH, b_along_k, width_b)
        cute.arch.cp_async_commit_group()
    for at in range(first, end):
        cute.arch.cp_async_wait_group(STAGES - 2)
        # this tile has arrived for everyone, and nobody still reads the stage that is filled next
        cute.arch.sync_threads()
        ahead = at + STAGES - 1
        if ahead < end:
            fetch(a, tiles_a, (ahead - first) % STAGES, row, ahead * DEPTH, m, k, tile[0], DEPTH, a_along_k, width_a)
            fetch(b, tiles_b, (ahead - first) % STAGES, column, ahead * DEPTH, n, k, tile[1], DEPTH, b_along_k, width_b)
        cute.arch.cp_async_commit_group()
        multiply(product, (at - first) % STAGES)
    totals, where = product.totals, product.where
    if cutlass.const_expr(how == "direct"):
        store(totals, where, d, row, column, m, n, pairs)
    elif cutlass.const_expr(how == "atomic"):
        add_atomically(totals, where, d, row, column, m, n)
    else:
        if gather(totals, partials, semaphores):
            store(totals, where, d, row, column, m, n, pairs)


@cute.jit
def gather(totals: cute.Tensor, partials: cute.Tensor, semaphores: cute.Tensor) -> Any:
    """Hand this CTA's partial tile over; in the last CTA `totals` becomes the sum of all slices: True there."""
    thread, _, _ = cute.arch.thread_idx()
    block_n, block_m, split = cute.arch.block_idx()
    blocks_n, blocks_m, splits = cute.arch.grid_dim()
    tile = block_m * blocks_n + block_n
    vectors = cute.size(totals) // 4
    mine = cute.make_tensor(totals.iterator, cute.make_layout((4, vectors)))
    slots = cute.zipped_divide(partials, (4,))  # (split, tile, vector of the thread, thread)
    slot = (cutlass.Int64(split) * (blocks_m * blocks_n) + tile) * (vectors * THREADS) + thread
    for v in cutlass.range_constexpr(vectors):
        cute.autovec_copy(mine[None, v], slots[None, slot + v * THREADS])
    memory = cutlass.memory.SmemAllocator()
    turn = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    cute.arch.sync_threads()  # every thread's part is written
    if thread == 0:
        turn[0] = cute.arch.atomic_add(semaphores.iterator + tile, cutlass.Int32(1), sem="acq_rel", scope="gpu")
    cute.arch.sync_threads()
    last = turn[0] == splits - 1
    if last:
        if thread == 0:
            semaphores[tile] = 0
        loaded = cute.make_rmem_tensor(cute.make_layout((4, vectors)), cutlass.Float32)
        totals.fill(0.0)
        for s in range(splits):
            slot = (cutlass.Int64(s) * (blocks_m * blocks_n) + tile) * (vectors * THREADS) + thread
            for v in cutlass.range_constexpr(vectors):
                cute.autovec_copy(slots[None, slot + v * THREADS], loaded[None, v])
            for v in cutlass.range_constexpr(vectors):
                for e in cutlass.range_constexpr(4):
                    mine[e, v] += loaded[e, v]
    return last


@cute.jit
def split_k_host(
    a: cute.Tensor,
    b: cute.Tensor,
    d: cute.Tensor,
    partials: cute.Tensor,
    semaphores: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    per_split: cutlass.Int32,
    splits: cutlass.Int32,
    stream: CUstream,
    how: cutlass.Constexpr,
    tile: cutlass.Constexpr,
    a_along_k: cutlass.Constexpr,
    b_along_k: cutlass.Constexpr,
    width_a: cutlass.Constexpr,
    width_b: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
) -> None:
    """Launch over (tiles of n, tiles of m, splits)."""
    layout_a, layout_b = (
        shared_layout(tile[0], DEPTH, STAGES, a_along_k),
        shared_layout(tile[1], DEPTH, STAGES, b_along_k),
    )
    split_k_kernel(
        a,
        b,
        d,
        partials,
        semaphores,
        m,
        n,
        k,
        per_split,
        layout_a,
        layout_b,
        tiled_mma(a.element_type),
        how,
        tile,
        a_along_k,
        b_along_k,
        width_a,
        width_b,
        pairs,
    ).launch(
        grid=[(n + tile[1] - 1) // tile[1], (m + tile[0] - 1) // tile[0], splits], block=[THREADS, 1, 1], stream=stream
    )


def access_width(matrix: torch.Tensor) -> int:
    """Elements of the widest access (1, 2, 4 or 8) that is aligned in every line of a 16-bit matrix."""
    along = 1 if matrix.stride(1) == 1 else 0
    pitch = matrix.stride(1 - along) if matrix.shape[1 - along] > 1 else 8
    return math.gcd(8, matrix.shape[along], pitch, matrix.data_ptr() // 2)


def choose_splits(m: int, n: int, k: int, tile: tuple[int, int], sms: int) -> int:
    """As many slices of k as fill the SMs with two CTAs each, but none with fewer than 4 tiles of k."""
    tiles = -(-m // tile[0]) * -(-n // tile[1])
    return max(1, min(2 * sms // tiles, -(-k // DEPTH) // 4))


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    deterministic: bool = True,
    splits: int | None = None,
    tile: tuple[int, int] | None = None,
) -> torch.Tensor:
    """a (m, k) @ b (k, n), float16 or bfloat16, accumulated in float32; each operand contiguous along one of its axes.

    `deterministic` gives a's type and the same bits in every run; otherwise slices are added by atomics, and the result
    is float32. `splits` is how many CTAs share a tile of d (chosen from the shape by default), `tile` is (128, 128) or
    (64, 64).
    """
    require(
        a.dim() == 2 and b.dim() == 2 and a.shape[1] == b.shape[0],
        f"matmul takes (m, k) and (k, n), not {tuple(a.shape)} and {tuple(b.shape)}",
    )
    require(
        a.dtype in ELEMENTS and b.dtype == a.dtype,
        f"matmul takes float16 or bfloat16, both the same, not {a.dtype} and {b.dtype}",
    )
    require(a.is_cuda and b.device == a.device, "both matrices must be on one CUDA device")
    (m, k), n = a.shape, b.shape[1]
    require(min(m, n, k) > 0, f"matmul of {tuple(a.shape)} and {tuple(b.shape)}: an extent is 0")
    a, bt = _lined(a), _lined(b.t())
    tile = tile or (LARGE if min(m, n) > 64 else SMALL)
    require(tile in (LARGE, SMALL), f"tile must be {LARGE} or {SMALL}, not {tile}")
    splits = splits or choose_splits(m, n, k, tile, processors(a.device))
    require(splits > 0, f"splits must be positive, not {splits}")
    depths = (k + DEPTH - 1) // DEPTH
    per_split = (depths + splits - 1) // splits
    splits = (depths + per_split - 1) // per_split  # no slice is empty
    how = "direct" if splits == 1 and deterministic else "deterministic" if deterministic else "atomic"
    d = (
        torch.empty(m, n, dtype=a.dtype, device=a.device)
        if deterministic
        else torch.zeros(m, n, dtype=torch.float32, device=a.device)
    )
    tiles = -(-m // tile[0]) * -(-n // tile[1])
    partials = torch.empty(
        splits * tiles * tile[0] * tile[1] if how == "deterministic" else 4, dtype=torch.float32, device=a.device
    )
    pairs = n % 2 == 0
    widths = access_width(a), access_width(bt)
    tensors = (
        _matrix(a, widths[0]),
        _matrix(bt, widths[1]),
        flat(d, d.element_size() * (1 + pairs)),
        flat(partials),
        flat(counters(a.device, tiles), 4),
    )
    sizes = tuple(cutlass.Int32(size) for size in (m, n, k, per_split, splits))
    launch(
        split_k_host,
        tensors,
        sizes,
        (how, tile, a.stride(1) == 1, bt.stride(1) == 1, *widths, pairs),
        key=(a.dtype, d.dtype),
    )
    return d


def _lined(matrix: torch.Tensor) -> torch.Tensor:
    """Contiguous along one axis, copied if it is along none; an axis of one element counts as the rows."""
    if 1 not in matrix.stride() or (matrix.stride(1) != 1 and matrix.shape[0] == 1):
        return matrix.contiguous()
    return matrix


def _matrix(matrix: torch.Tensor, width: int) -> Any:
    """A CuTe tensor with dynamic shape and pitch, aligned for accesses of `width` elements."""
    return from_dlpack(matrix.detach(), assumed_align=2 * width).mark_layout_dynamic(
        leading_dim=1 if matrix.stride(1) == 1 else 0
    )


def main(arguments: list[str] | None = None) -> None:
    """Multiply small integers, whose sums are exact; check both ways."""
    parser = argparse.ArgumentParser(description="split-k matrix product")
    for name, default in (("m", 200), ("n", 136), ("k", 1001)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    for dtype in (torch.float16, torch.bfloat16):
        a = torch.randint(-2, 3, (options.m, options.k), device="cuda").to(dtype)
        for layout, b in (
            ("n", torch.randint(-2, 3, (options.k, options.n), device="cuda").to(dtype)),
            ("k", torch.randint(-2, 3, (options.n, options.k), device="cuda").to(dtype).t()),
        ):
            exact = a.double() @ b.double()
            for deterministic in (True, False):
                d = matmul(a, b, deterministic=deterministic)
                same = torch.equal(d, exact.to(d.dtype))
                way = "deterministic" if deterministic else "atomic"
                print(f"{dtype} b contiguous along {layout} {way}: equal {same}")
                assert same


if __name__ == "__main__":
    main()
