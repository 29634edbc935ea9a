"""Residual add fused with RMSNorm or LayerNorm, over the last axis; the row is read once and stays in registers.

    total = x + residual                      (written back: it is the residual of the next layer)
    rms:   y = total * rsqrt(mean(total**2) + eps) * weight
    layer: y = (total - mean) * rsqrt(variance + eps) * weight + bias

Such a kernel is bound by memory, so each byte is moved once: every thread loads its part of the row, 16 bytes per access and neighbouring threads at
neighbouring addresses (coalesced), all loads issued before the first is needed, and keeps it in registers through both statistics and the output. A row is shared
by just so many threads that each holds about 16 elements: a single warp for short rows (then a CTA has 4 rows and needs no barrier), up to 1024 threads for
long ones. Sums go over a warp by 5 shuffles and over the CTA's warps through 32 words of shared memory. The variance is the mean of squared differences from the
mean, which costs a second sum but no second read, and does not cancel as mean(x**2) - mean(x)**2 does. Statistics are float32 whatever the type; the order
of summation is fixed, so the result is the same in every run.

    python -m workbench.examples.norm --rows 37 --columns 1000
"""

import argparse
import math
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import flat, launch, require, same_place, vector_width

PER_THREAD = 16  # elements of a row that a thread should hold
MOST_PER_THREAD = 32


def early(elements: int, threads: int) -> bool:
    """Whether weights are loaded before the sums and wait in registers: for that, 1024 threads with 64 registers each have too few."""
    return elements <= PER_THREAD and threads < 1024


@cute.jit
def row_sum(value: Any, scratch: cute.Tensor, threads: cutlass.Constexpr) -> Any:
    """The sum over the threads that share a row, the same for each of them; scratch has a word per warp."""
    thread, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(5):
        value += cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
    if cutlass.const_expr(threads > 32):
        warps = threads // 32
        if thread % 32 == 0:
            scratch[thread // 32] = value
        cute.arch.sync_threads()
        value = scratch[thread % warps]  # every warp sums the warps' sums for itself: no second barrier
        for step in cutlass.range_constexpr(int(math.log2(warps))):
            value += cute.arch.shuffle_sync_bfly(value, offset=warps >> (step + 1))
    return value


@cute.kernel
def norm_kernel(
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    bias: cute.Tensor,
    total: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    eps: cutlass.Float32,
    layer: cutlass.Constexpr,
    fused: cutlass.Constexpr,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
) -> None:
    """x, residual, total, y (rows * columns); weight, bias (columns). A thread holds `turns` vectors of `width` elements of a row."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    scratch = memory.allocate_tensor(cutlass.Float32, cute.make_layout((32, 2)), 16)
    row = block * rows_per_cta + thread // threads
    vectors = columns // width
    if row < rows:
        start = cutlass.Int64(row) * vectors
        shape = cute.make_layout((width, turns))
        kept, other = cute.make_rmem_tensor(shape, x.element_type), cute.make_rmem_tensor(shape, x.element_type)
        scale, shift = (
            cute.make_rmem_tensor(shape, weight.element_type),
            cute.make_rmem_tensor(shape, weight.element_type),
        )
        kept.fill(0)
        lane = thread % threads
        for turn in cutlass.range_constexpr(turns):
            part = turn * threads + lane
            if part < vectors:
                cute.autovec_copy(cute.zipped_divide(x, (width,))[None, start + part], kept[None, turn])
                if cutlass.const_expr(fused):
                    cute.autovec_copy(cute.zipped_divide(residual, (width,))[None, start + part], other[None, turn])
        if cutlass.const_expr(early(width * turns, threads)):
            load_weights(weight, bias, scale, shift, vectors, lane, layer, width, turns, threads)
        if cutlass.const_expr(fused):
            for turn in cutlass.range_constexpr(turns):
                part = turn * threads + lane
                if part < vectors:
                    for e in cutlass.range_constexpr(width):
                        kept[e, turn] = (kept[e, turn].to(cutlass.Float32) + other[e, turn].to(cutlass.Float32)).to(
                            x.element_type
                        )
                    cute.autovec_copy(kept[None, turn], cute.zipped_divide(total, (width,))[None, start + part])
        mean = cutlass.Float32(0)
        if cutlass.const_expr(layer):
            for turn in cutlass.range_constexpr(turns):
                for e in cutlass.range_constexpr(width):
                    mean += kept[e, turn].to(cutlass.Float32)
            mean = row_sum(mean, scratch[None, 0], threads) / columns
        square = cutlass.Float32(0)
        for turn in cutlass.range_constexpr(turns):
            if turn * threads + lane < vectors:  # what sticks out of the row is 0, but its distance to the mean is not
                for e in cutlass.range_constexpr(width):
                    difference = kept[e, turn].to(cutlass.Float32) - mean
                    square += difference * difference
        square = row_sum(square, scratch[None, 1], threads)
        factor = cute.math.rsqrt(square / columns + eps)
        if cutlass.const_expr(not early(width * turns, threads)):
            load_weights(weight, bias, scale, shift, vectors, lane, layer, width, turns, threads)
        for turn in cutlass.range_constexpr(turns):
            part = turn * threads + lane
            if part < vectors:
                for e in cutlass.range_constexpr(width):
                    value = (kept[e, turn].to(cutlass.Float32) - mean) * factor * scale[e, turn].to(cutlass.Float32)
                    if cutlass.const_expr(layer):
                        value += shift[e, turn].to(cutlass.Float32)
                    kept[e, turn] = value.to(x.element_type)
                cute.autovec_copy(kept[None, turn], cute.zipped_divide(y, (width,))[None, start + part])


@cute.jit
def load_weights(
    weight: cute.Tensor,
    bias: cute.Tensor,
    scale: cute.Tensor,
    shift: cute.Tensor,
    vectors: Any,
    lane: Any,
    layer: cutlass.Constexpr,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
) -> None:
    """The weights of this thread's columns; all rows share them, so they come from L1 or L2."""
    for turn in cutlass.range_constexpr(turns):
        part = turn * threads + lane
        if part < vectors:
            cute.autovec_copy(cute.zipped_divide(weight, (width,))[None, part], scale[None, turn])
            if cutlass.const_expr(layer):
                cute.autovec_copy(cute.zipped_divide(bias, (width,))[None, part], shift[None, turn])


@cute.jit
def norm_host(
    x: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    bias: cute.Tensor,
    total: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
    eps: cutlass.Float32,
    stream: CUstream,
    layer: cutlass.Constexpr,
    fused: cutlass.Constexpr,
    width: cutlass.Constexpr,
    turns: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    rows_per_cta: cutlass.Constexpr,
) -> None:
    """A CTA for every `rows_per_cta` rows."""
    norm_kernel(
        x, residual, weight, bias, total, y, rows, columns, eps, layer, fused, width, turns, threads, rows_per_cta
    ).launch(
        grid=[(rows + rows_per_cta - 1) // rows_per_cta, 1, 1], block=[threads * rows_per_cta, 1, 1], stream=stream
    )


def _norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    require(
        x.dtype in (torch.float32, torch.float16, torch.bfloat16),
        f"the norms take float32, float16 and bfloat16, not {x.dtype}",
    )
    require(x.dim() > 0 and x.shape[-1] > 0, "the last axis must have elements")
    columns = x.shape[-1]
    for name, one in (("weight", weight), ("bias", bias)):
        if one is not None:
            require(one.shape == (columns,), f"{name} must have shape ({columns},), not {tuple(one.shape)}")
            require(
                one.dtype == weight.dtype and one.dtype.is_floating_point and one.element_size() <= 4,
                f"{name} has type {one.dtype}",
            )
    if residual is not None:
        require(
            residual.shape == x.shape and residual.dtype == x.dtype,
            f"residual must have shape {tuple(x.shape)} and type {x.dtype}",
        )
    y = torch.empty_like(x)
    total = x if residual is None else torch.empty_like(x)
    row_tensors = [x, y, total, *([residual] if residual is not None else [])]
    weights = [weight, *([bias] if bias is not None else [])]
    same_place(*row_tensors, *weights)
    width = vector_width(columns, *row_tensors)
    while any(t.data_ptr() % min(16, width * t.element_size()) for t in weights):
        width //= 2
    threads = min(1024, max(32, 1 << (-(-columns // PER_THREAD) - 1).bit_length()))
    turns = -(-(columns // width) // threads)
    require(
        turns * width <= MOST_PER_THREAD,
        f"{columns} columns do not fit the registers of 1024 threads: at most {1024 * MOST_PER_THREAD}",
    )
    if x.numel() == 0:
        return y, total
    along = [flat(t, width * x.element_size()) for t in (x, x if residual is None else residual)]
    across = [flat(t, min(16, width * t.element_size())) for t in (weight, weight if bias is None else bias)]
    out = [flat(t, width * x.element_size()) for t in (total, y)]
    sizes = (cutlass.Int32(x.numel() // columns), cutlass.Int32(columns), cutlass.Float32(eps))
    launch(
        norm_host,
        (*along, *across, *out),
        sizes,
        (bias is not None, residual is not None, width, turns, threads, max(1, 128 // threads) if threads == 32 else 1),
        key=(x.dtype, weight.dtype),
    )
    return y, total


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of x + residual (or of x) over the last axis: (y, x + residual), both of x's shape and type.

    x and residual (..., columns) are contiguous float32, float16 or bfloat16, columns at most 32768; weight (columns,) may be of another of these types.
    """
    return _norm(x, weight, None, residual, eps)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor | None = None, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm of x + residual (or of x) over the last axis: (y, x + residual). Arguments as for `rms_norm`; bias (columns,) has weight's type."""
    return _norm(x, weight, bias, residual, eps)


def main(arguments: list[str] | None = None) -> None:
    """Normalise random rows, check against torch."""
    parser = argparse.ArgumentParser(description="fused residual add and norm")
    parser.add_argument("--rows", type=int, default=37)
    parser.add_argument("--columns", type=int, default=1000)
    options = parser.parse_args(arguments)
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 2e-2)):
        x, residual = (torch.randn(options.rows, options.columns, device="cuda").to(dtype) for _ in range(2))
        weight, bias = (torch.randn(options.columns, device="cuda").to(dtype) for _ in range(2))
        h = (x + residual).double()
        wanted = {
            "rms": h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * weight.double(),
            "layer": torch.nn.functional.layer_norm(h, (options.columns,), weight.double(), bias.double()),
        }
        for name, (y, total) in {
            "rms": rms_norm(x, weight, residual),
            "layer": layer_norm(x, weight, bias, residual),
        }.items():
            error = ((y.double() - wanted[name]).abs() / (1 + wanted[name].abs())).max().item()
            print(f"{name:5} {dtype}: total equal {torch.equal(total, x + residual)}, largest error {error:.2g}")
            assert torch.equal(total, x + residual) and error < tolerance


if __name__ == "__main__":
    main()
