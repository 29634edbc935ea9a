"""Two-dimensional convolution as a matrix product that is never written out (implicit GEMM); stride, padding, dilation; float16 or bfloat16, channels last.

With the channels last, a convolution is D = A @ B transposed, where a row of A belongs to one output pixel (image, p, q) and holds the input values under the filter, in the order
(filter row r, filter column s, channel c), and a row of B is one filter in the same order. A has R * S times as many elements as the input, so it is not built: the
copies into shared memory gather it. Each thread copies the same 8 depth positions (one 16-byte chunk along the channels) for several pixels. It works out
(r, s, c) once per tile of the depth, and each pixel's corner (image, p * stride - padding, q * stride - padding) once for the whole kernel; what is left per copy is
two additions, a bounds check and one address. Where the filter hangs over the image, cp.async writes zeros (its source size is 0), so padding costs no branch.

From there on it is the multistage tensor-core product of `split_k`: two tiles in flight, ldmatrix from swizzled shared memory, mma.sync, float32 accumulators. Channels that are no
multiple of 8 take copies of 8 bytes, and channels that are no multiple of 4 (the 3 colours of a photograph) are padded with zeros first.

    python -m workbench.examples.conv2d --batch 2 --channels 24 --filters 40 --size 13
"""

import argparse
import math
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings.driver import CUstream

from workbench.examples.launching import flat, launch, require, view
from workbench.examples.tensor_core import THREADS, Product, fetch, multiply, put, shared_layout, store, tiled_mma

STAGES = 3
DEPTH = 64
TILES = ((128, 128), (128, 64), (64, 64))  # output pixels x filters


@cute.jit
def divide(a: Any, b: Any) -> Any:
    """Quotient and remainder of numbers that are not negative: one unsigned division, where // of signed numbers has to look at signs."""
    quotient = (cutlass.Uint32(a) // cutlass.Uint32(b)).to(cutlass.Int32)
    return quotient, a - quotient * b


@cute.jit
def corners(shape: Any, block: Any, tile: cutlass.Constexpr, width: cutlass.Constexpr) -> Any:
    """For each pixel that this thread gathers: the image's first row in x, and the input position under the filter's first element; (3, pixels)."""
    height, _, out_height, out_columns, _, pixels, stride, padding = shape
    thread, _, _ = cute.arch.thread_idx()
    across = DEPTH // width
    count = tile[0] * across // THREADS
    found = cute.make_rmem_tensor(cute.make_layout((3, count)), cutlass.Int32)
    for step in cutlass.range_constexpr(count):
        pixel = block * tile[0] + step * (THREADS // across) + thread // across
        line, q = divide(pixel, out_columns)
        image, p = divide(line, out_height)
        found[0, step] = image * height
        found[1, step] = p * stride[0] - padding[0]
        found[2, step] = q * stride[1] - padding[1]
        if pixel >= pixels:
            found[1, step] = -(1 << 30)  # outside of every image
    return found


@cute.jit
def gather(
    x: cute.Tensor,
    tiles: cute.Tensor,
    stage: Any,
    at: Any,
    found: cute.Tensor,
    shape: Any,
    filters: Any,
    dilation: Any,
    width: cutlass.Constexpr,
) -> None:
    """Start copying one tile of the depth of A: for each of the thread's pixels, `width` channels at one filter position."""
    height, columns, _, _, channels, _, _, _ = shape
    thread, _, _ = cute.arch.thread_idx()
    across = DEPTH // width
    chunk = thread % across * width
    position, c = divide(at * DEPTH + chunk, channels)
    r, s = divide(position, filters[1])
    down, right, rows, length = r * dilation[0], s * dilation[1], cutlass.Uint32(height), cutlass.Uint32(columns)
    exists = r < filters[0]  # the last tile of the depth may stick out
    for step in cutlass.range_constexpr(cute.size(found, mode=[1])):
        h, w = found[1, step] + down, found[2, step] + right
        inside = (
            exists & (cutlass.Uint32(h) < rows) & (cutlass.Uint32(w) < length)
        )  # unsigned: what is negative is large
        offset = (cutlass.Int64(found[0, step] + h) * columns + w) * channels + c
        put(
            tiles,
            step * (THREADS // across) + thread // across,
            chunk,
            stage,
            x.iterator + cute.assume(offset, divby=width),
            inside,
            width,
        )


@cute.kernel
def conv2d_kernel(
    x: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    shape: Any,
    filters: Any,
    dilation: Any,
    count: cutlass.Int32,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    mma: cute.TiledMma,
    tile: cutlass.Constexpr,
    width: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
) -> None:
    """x (images * height * columns * channels), weight (count, R * S * channels), y (pixels * count)."""
    block_n, block_m, _ = cute.arch.block_idx()
    memory = cutlass.memory.SmemAllocator()
    tiles_a = memory.allocate_tensor(x.element_type, layout_a, 128)
    tiles_b = memory.allocate_tensor(x.element_type, layout_b, 128)
    product = Product(mma, tiles_a, tiles_b, tile)
    found = corners(shape, block_m, tile, width)
    depth = filters[0] * filters[1] * shape[4]
    column = block_n * tile[1]
    end = (depth + DEPTH - 1) // DEPTH
    for ahead in cutlass.range(STAGES - 1, unroll=1):
        if ahead < end:
            gather(x, tiles_a, ahead, ahead, found, shape, filters, dilation, width)
            fetch(weight, tiles_b, ahead, column, ahead * DEPTH, count, depth, tile[1], DEPTH, True, width)
        cute.arch.cp_async_commit_group()
    for at in range(end):
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()  # this tile has arrived for everyone, and nobody still reads the stage that is filled next
        ahead = at + STAGES - 1
        if ahead < end:
            gather(x, tiles_a, ahead % STAGES, ahead, found, shape, filters, dilation, width)
            fetch(weight, tiles_b, ahead % STAGES, column, ahead * DEPTH, count, depth, tile[1], DEPTH, True, width)
        cute.arch.cp_async_commit_group()
        multiply(product, at % STAGES)
    store(product.totals, product.where, y, block_m * tile[0], column, shape[5], count, pairs)


@cute.jit
def conv2d_host(
    x: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    shape: Any,
    filters: Any,
    dilation: Any,
    count: cutlass.Int32,
    stream: CUstream,
    tile: cutlass.Constexpr,
    width: cutlass.Constexpr,
    pairs: cutlass.Constexpr,
) -> None:
    """One CTA per tile of (pixels, filters); CTAs that share pixels are neighbours."""
    layout_a, layout_b = shared_layout(tile[0], DEPTH, STAGES, True), shared_layout(tile[1], DEPTH, STAGES, True)
    conv2d_kernel(
        x, weight, y, shape, filters, dilation, count, layout_a, layout_b, tiled_mma(x.element_type), tile, width, pairs
    ).launch(
        grid=[(count + tile[1] - 1) // tile[1], (shape[5] + tile[0] - 1) // tile[0], 1],
        block=[THREADS, 1, 1],
        stream=stream,
    )


def _pair(value: int | tuple[int, int], name: str, least: int) -> tuple[int, int]:
    both = (value, value) if isinstance(value, int) else (value[0], value[1])
    require(min(both) >= least, f"{name} must be one or two numbers, at least {least}, not {value}")
    return both


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """torch.nn.functional.conv2d without bias and groups: x (images, channels, height, columns), weight (filters, channels, R, S), result (images, filters, P, Q) of x's type.

    All in memory order channels_last, float16 or bfloat16, summed in float32; stride, padding and dilation are one number or (vertical, horizontal).
    """
    require(
        x.dim() == 4 and weight.dim() == 4 and x.shape[1] == weight.shape[1],
        f"conv2d takes (n, c, h, w) and (k, c, r, s), not {tuple(x.shape)} and {tuple(weight.shape)}",
    )
    require(
        x.dtype in (torch.float16, torch.bfloat16) and weight.dtype == x.dtype,
        f"conv2d takes float16 or bfloat16, both the same, not {x.dtype} and {weight.dtype}",
    )
    require(x.is_cuda and weight.device == x.device, "both tensors must be on one CUDA device")
    for name, one in (("x", x), ("weight", weight)):
        require(
            one.permute(0, 2, 3, 1).is_contiguous(),
            f"{name} must be contiguous with the channels last: {name}.contiguous(memory_format=torch.channels_last)",
        )
    steps, pads, spread = _pair(stride, "stride", 1), _pair(padding, "padding", 0), _pair(dilation, "dilation", 1)
    if x.shape[1] % 4:
        x, weight = (
            torch.nn.functional.pad(one.permute(0, 2, 3, 1), (0, -x.shape[1] % 4)).permute(0, 3, 1, 2)
            for one in (x, weight)
        )
    (images, channels, height, columns), (count, _, *filters) = x.shape, weight.shape
    out = [
        (extent + 2 * pad - d * (f - 1) - 1) // step + 1
        for extent, pad, d, f, step in zip((height, columns), pads, spread, filters, steps, strict=True)
    ]
    require(
        min(out) > 0 and min(weight.shape) > 0,
        f"filters of {tuple(filters)} do not fit into images of {(height, columns)} with padding {pads} and dilation {spread}",
    )
    y = torch.empty((images, count, *out), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    pixels = images * out[0] * out[1]
    if pixels == 0:
        return y
    width = math.gcd(8, channels, x.data_ptr() // 2, weight.data_ptr() // 2)
    tile = TILES[2] if pixels <= 2048 else TILES[1] if count <= 64 else TILES[0]
    tensors = (flat(x.permute(0, 2, 3, 1), 2 * width), _filters(weight, width), flat(y.permute(0, 2, 3, 1), 4))
    shape = (height, columns, *out, channels, pixels, steps, pads)
    launch(
        conv2d_host,
        tensors,
        (_numbers(shape), _numbers(tuple(filters)), _numbers(spread), cutlass.Int32(count)),
        (tile, width, count % 2 == 0),
        key=(x.dtype,),
    )
    return y


def _filters(weight: torch.Tensor, width: int) -> Any:
    """The filters as a matrix (count, R * S * channels)."""
    return view(weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1), 2 * width)


def _numbers(value: Any) -> Any:
    """Dynamic numbers of a nested tuple."""
    return tuple(_numbers(one) for one in value) if isinstance(value, tuple) else cutlass.Int32(value)


def main(arguments: list[str] | None = None) -> None:
    """Convolve small integers, whose sums are exact; check against torch in float64."""
    parser = argparse.ArgumentParser(description="implicit GEMM convolution")
    for name, default in (("batch", 2), ("channels", 24), ("filters", 40), ("size", 13)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    for dtype, window, settings in (
        (torch.float16, (3, 3), {"padding": 1}),
        (torch.bfloat16, (3, 2), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    ):
        x = (
            torch.randint(-2, 3, (options.batch, options.channels, options.size, options.size + 2), device="cuda")
            .to(dtype)
            .contiguous(memory_format=torch.channels_last)
        )
        weight = (
            torch.randint(-2, 3, (options.filters, options.channels, *window), device="cuda")
            .to(dtype)
            .contiguous(memory_format=torch.channels_last)
        )
        exact = torch.nn.functional.conv2d(x.double(), weight.double(), **settings).to(dtype)
        same = torch.equal(conv2d(x, weight, **settings), exact)
        print(f"{dtype} {window} {settings}: equal {same}")
        assert same


if __name__ == "__main__":
    main()
