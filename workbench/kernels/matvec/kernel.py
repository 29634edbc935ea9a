"""Matrix times vector, several rows in a CTA: x (..., columns), vector (columns) -> y (...)."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.host import (
    EXACT_DTYPES,
    FLOAT_DTYPES,
    DynamicTensor,
    VectorTensor,
    call,
    check_operand,
    check_rank,
)
from workbench.kernels.static import Static, bind


@cute.jit
def add_products(cfg: Static, x, vector, starts, sums, first, width: cutlass.Constexpr, turns: cutlass.Constexpr):
    """Take in `turns` vectors of a thread, from number `first` of each row on, those of `vector` once.

    All are loaded before the first is used.
    """
    x_part = cute.make_rmem_tensor(cute.make_layout((width, turns, cfg.rows)), x.element_type)
    vector_part = cute.make_rmem_tensor(cute.make_layout((width, turns)), vector.element_type)
    for turn in cutlass.range_constexpr(turns):
        for r in cutlass.range_constexpr(cfg.rows):
            cute.autovec_copy(x[starts[r] + first + turn * cfg.threads, None], x_part[None, turn, r])
    for turn in cutlass.range_constexpr(turns):
        cute.autovec_copy(vector[first + turn * cfg.threads, None], vector_part[None, turn])
    for turn in cutlass.range_constexpr(turns):
        for r in cutlass.range_constexpr(cfg.rows):
            for e in cutlass.range_constexpr(width):
                sums[r] = sums[r] + x_part[e, turn, r].to(cutlass.Float32) * vector_part[e, turn].to(cutlass.Float32)


@cute.kernel
def matvec_kernel(
    cfg: Static,
    x: cute.Tensor,
    vector: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    vectors: cutlass.Int32,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    """Compute ROWS rows of `vectors` vectors each per CTA; past the last row it reads that again and stores nothing."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    layout = cute.make_layout((cfg.rows, cfg.threads // 32))
    smem = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, layout, 16)
    starts = cute.make_rmem_tensor(cute.make_layout(cfg.rows), cutlass.Int32)  # of the rows, in vectors
    sums = cute.make_rmem_tensor(cute.make_layout(cfg.rows), cutlass.Float32)
    for r in cutlass.range_constexpr(cfg.rows):
        starts[r] = cutlass.min(bidx * cfg.rows + r, rows - 1) * vectors
        sums[r] = cutlass.Float32(0.0)
    whole = vectors // (cfg.threads * turns) * (cfg.threads * turns)  # vectors of which every thread has as many
    for first in range(tidx, whole, cfg.threads * turns):
        add_products(cfg, x, vector, starts, sums, first, width, turns)
    for first in cutlass.range(whole + tidx, vectors, cfg.threads, unroll=1):
        add_products(cfg, x, vector, starts, sums, first, width, 1)
    for r in cutlass.range_constexpr(cfg.rows):
        value = sums[r]
        for step in cutlass.range_constexpr(5):
            value = value + cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
        if tidx % 32 == 0:
            smem[r, tidx // 32] = value
    cute.arch.sync_threads()
    row = bidx * cfg.rows + tidx
    if (tidx < cfg.rows) & (row < rows):
        value = smem[tidx, 0]
        for warp in cutlass.range_constexpr(1, cfg.threads // 32):
            value = value + smem[tidx, warp]
        y[row] = value.to(y.element_type)


@cute.jit
def launch_matvec(
    cfg: Static,
    x: cute.Tensor,
    vector: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    vectors: cutlass.Int32,
    stream: cuda.CUstream,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
):
    ctas = (rows + cfg.rows - 1) // cfg.rows
    matvec_kernel(cfg, x, vector, y, rows, vectors, width, turns).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


def vectors_of(tensor, width):
    """A contiguous tensor as (vectors, width): up to 2^31 elements, where a flat one has less."""
    return VectorTensor(tensor.view(-1, width), align=16 if width > 1 else None)


def matvec(cfg: Static, names: Static, x, vector):
    """Multiply x by a vector; x is a float, the vector any type of which float32 has all values."""
    x, vector = x.detach(), vector.detach().reshape(-1)
    check_rank(names["x"], x, 1)
    check_operand(names["x"], x, x.shape, FLOAT_DTYPES)
    check_operand(names["vector"], vector, x.shape[-1:], EXACT_DTYPES)
    x, vector, columns = x.contiguous(), vector.contiguous(), x.shape[-1]
    if x.numel() > ((1 << 31) if cfg.vector > 1 else (1 << 31) - 1):
        raise ValueError("x has too many elements for 32-bit places, 2**31 and more")
    y = torch.empty((*x.shape[:-1], 1) if cfg.keepdim else x.shape[:-1], dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    if cutlass.const_expr(cfg.vector > 1):
        width = cfg.vector if columns % cfg.vector == 0 and (x.data_ptr() | vector.data_ptr()) % 16 == 0 else 1
        turns = cfg.unroll * cfg.vector // width  # vectors of each row that a thread loads at once
    else:
        width = 1
        turns = cfg.unroll  # elements of each row that a thread loads at once
    call(
        bind(launch_matvec, cfg),
        (x.dtype, vector.dtype, width, turns),
        (
            vectors_of(x, width),
            vectors_of(vector, width),
            DynamicTensor(y.view(-1)),
            y.numel(),
            columns // width,
        ),
        (width, turns),
    )
    return y
