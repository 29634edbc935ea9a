"""Sum, maximum or minimum of all elements of a tensor, in one launch.

A grid of a few CTAs per SM walks over the data with a grid stride. Each thread keeps UNROLL loads of 16 bytes in
flight, which hides the latency of memory; neighbouring threads read neighbouring 16 bytes, so that a warp's request is
512 contiguous bytes. Each thread accumulates in a register, warps combine by shuffles, the CTA's warps through shared
memory, and thread 0 writes the CTA's partial result to a workspace.

Last-CTA finish. No CTA waits for another. Thread 0 makes its partial visible to the whole GPU and then increments a
counter, in one atomic with acquire-release order; whoever counts last knows that all partials are there. That CTA
combines them, in the order of their CTAs: the result does not depend on who was last, and is the same in every run. It
also sets the counter back to 0 for the next call, so that no memset is needed.

Sums of float16, bfloat16 and float32 are accumulated in float32, sums of int32 in int64 as torch does; maximum and
minimum keep the type. NaN is not propagated by maximum and minimum (IEEE 754 maximumNumber, which is what max.f32
does).

    python -m workbench.examples.reduce_all --count 1000003
"""

import argparse
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import counters, flat, launch, processors, require, same_place

THREADS = 256
WARPS = THREADS // 32
UNROLL = 4  # 16-byte loads in flight per thread
CTAS_PER_SM = 8  # 2048 threads: a full SM
RESULT = {
    torch.float32: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int32: torch.int64,
}
TYPES = {torch.float32: cutlass.Float32, torch.int64: cutlass.Int64, torch.int32: cutlass.Int32}
OPS = ("sum", "max", "min")


@cute.jit
def combine(a: Any, b: Any, op: cutlass.Constexpr) -> Any:
    """a op b."""
    result = a + b
    if cutlass.const_expr(op == "max"):
        result = cutlass.max(a, b)
    if cutlass.const_expr(op == "min"):
        result = cutlass.min(a, b)
    return result


@cute.jit
def across_cta(value: Any, scratch: cute.Tensor, op: cutlass.Constexpr) -> Any:
    """Combine the threads' values: each warp by shuffles, then warp 0 the warps. Thread 0 has the result."""
    thread, _, _ = cute.arch.thread_idx()
    for step in cutlass.range_constexpr(5):
        value = combine(value, cute.arch.shuffle_sync_bfly(value, offset=16 >> step), op)
    if thread % 32 == 0:
        scratch[thread // 32] = value
    cute.arch.sync_threads()
    value = scratch[thread % WARPS]
    for step in cutlass.range_constexpr(3):  # 8 warps
        value = combine(value, cute.arch.shuffle_sync_bfly(value, offset=4 >> step), op)
    return value


@cute.kernel
def reduce_kernel(
    x: cute.Tensor,
    partials: cute.Tensor,
    result: cute.Tensor,
    counter: cute.Tensor,
    count: cutlass.Int64,
    start: Any,
    op: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """x (count), partials (CTAs), result (1), counter with 0 in its first word before and after."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    kind = partials.element_type
    memory = cutlass.memory.SmemAllocator()
    scratch = memory.allocate_tensor(kind, cute.make_layout(WARPS), 16)
    last = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    value = start
    vectors = count // width
    pieces = cute.zipped_divide(x, (width,))
    loaded = cute.make_rmem_tensor(cute.make_layout((width, UNROLL)), x.element_type)
    stride = cutlass.Int64(blocks) * THREADS
    at = cutlass.Int64(block) * THREADS + thread
    while at + (UNROLL - 1) * stride < vectors:
        for u in cutlass.range_constexpr(UNROLL):
            cute.autovec_copy(pieces[None, at + u * stride], loaded[None, u])
        for u in cutlass.range_constexpr(UNROLL):
            for e in cutlass.range_constexpr(width):
                value = combine(value, loaded[e, u].to(kind), op)
        at += UNROLL * stride
    while at < vectors:
        cute.autovec_copy(pieces[None, at], loaded[None, 0])
        for e in cutlass.range_constexpr(width):
            value = combine(value, loaded[e, 0].to(kind), op)
        at += stride
    tail = vectors * width + thread  # fewer than `width` elements are left
    if (block == 0) & (tail < count):
        value = combine(value, x[tail].to(kind), op)

    value = across_cta(value, scratch, op)
    if thread == 0:
        partials[block] = value
        before = cute.arch.atomic_add(
            counter.iterator, cutlass.Int32(1), sem="acq_rel", scope="gpu"
        )  # releases the partial, and acquires everybody's
        last[0] = before
    cute.arch.sync_threads()
    if last[0] == blocks - 1:
        total = start
        for i in range(thread, blocks, THREADS):
            total = combine(total, partials[i], op)
        cute.arch.sync_threads()  # scratch is used again
        total = across_cta(total, scratch, op)
        if thread == 0:
            result[0] = total.to(result.element_type)
            counter[0] = 0


@cute.jit
def reduce_host(
    x: cute.Tensor,
    partials: cute.Tensor,
    result: cute.Tensor,
    counter: cute.Tensor,
    count: cutlass.Int64,
    start: Any,
    blocks: cutlass.Int32,
    stream: CUstream,
    op: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """Launch over `blocks` CTAs."""
    reduce_kernel(x, partials, result, counter, count, start, op, width).launch(
        grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream
    )


def reduce_all(x: torch.Tensor, op: str = "sum") -> torch.Tensor:
    """The sum, max or min of all elements of x, as a tensor without dimensions.

    x is contiguous, of any shape: float32, float16, bfloat16 or int32.

    The result is float32 for floating-point sums, int64 for integer sums, and x's type for max and min. Bitwise
    reproducible on one device.
    """
    require(op in OPS, f"op must be one of {', '.join(OPS)}, not {op!r}")
    require(x.dtype in RESULT, f"reduce_all takes float32, float16, bfloat16 and int32, not {x.dtype}")
    require(x.numel() > 0 or op == "sum", f"the {op} of no elements is not defined")
    same_place(x)
    accumulator = RESULT[x.dtype] if op == "sum" or x.dtype != torch.int32 else torch.int32
    width = 16 // x.element_size()
    while x.data_ptr() % (width * x.element_size()):
        width //= 2
    blocks = max(1, min(processors(x.device) * CTAS_PER_SM, -(-x.numel() // (width * THREADS))))
    result = torch.empty((), dtype=accumulator if op == "sum" else x.dtype, device=x.device)
    partials = torch.empty(blocks, dtype=accumulator, device=x.device)
    neutral: float = (
        0
        if op == "sum"
        else (torch.iinfo(torch.int32).min if op == "max" else torch.iinfo(torch.int32).max)
        if x.dtype == torch.int32
        else float("-inf")
        if op == "max"
        else float("inf")
    )
    launch(
        reduce_host,
        (flat(x, width * x.element_size()), view1(partials), view1(result), view1(counters(x.device, 1))),
        (cutlass.Int64(x.numel()), TYPES[accumulator](neutral), cutlass.Int32(blocks)),
        (op, width),
        key=(x.dtype,),
    )
    return result


def view1(tensor: torch.Tensor) -> Any:
    """A small one-dimensional tensor, aligned to its elements."""
    return flat(tensor, tensor.element_size())


def main(arguments: list[str] | None = None) -> None:
    """Reduce random numbers, check against torch."""
    parser = argparse.ArgumentParser(description="full reduction")
    parser.add_argument("--count", type=int, default=1_000_003)
    options = parser.parse_args(arguments)
    x = torch.randint(-50, 50, (options.count,), dtype=torch.int32, device="cuda")
    for op in OPS:
        ours, theirs = reduce_all(x, op).item(), getattr(torch, op)(x).item()
        print(f"{op:4}int32    ours {ours}  torch {theirs}")
        assert ours == theirs
    y = x.to(torch.bfloat16)
    ours, theirs = reduce_all(y).item(), y.double().sum().item()
    print(f"sum bfloat16 ours {ours}  exact {theirs}")
    assert abs(ours - theirs) <= 1e-6 * y.double().abs().sum().item()


if __name__ == "__main__":
    main()
