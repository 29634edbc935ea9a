"""Two-dimensional convolution as a matrix product that is never written out (implicit GEMM), channels last.

Stride, padding and dilation; float16 or bfloat16. The kernel is `workbench.kernels.conv.channels_last`; this module
configures, calls and checks it.

With the channels last, a convolution is D = A @ B transposed, where a row of A belongs to one output pixel (image, p,
q) and holds the input values under the filter, in the order (filter row r, filter column s, channel c), and a row of B
is one filter in the same order. A has R * S times as many elements as the input, so it is not built: the copies into
shared memory gather it. Each thread copies the same 8 positions of k (one 16-byte chunk along the channels) for several
pixels. It works out (r, s, c) once per tile of k (`gather_tile`), and each pixel's corner (image, p * stride - padding,
q * stride - padding) once for the whole kernel (`find_corners`); what is left per copy is two additions, a bounds check
and one address. Where the filter hangs over the image, cp.async writes zeros (its source size is 0), so padding costs
no branch.

From there on it is the multistage tensor-core product of `split_k`, by the same functions: two tiles in flight,
ldmatrix from swizzled shared memory, mma.sync, float32 accumulators. Channels that are no multiple of 8 take copies of
8 bytes, and channels that are no multiple of 4 (the 3 colours of a photograph) are padded with zeros first.

    python -m workbench.examples.conv2d --batch 2 --channels 24 --filters 40 --size 13
"""

import argparse
import functools

import torch

from workbench.kernels.conv.channels_last import host
from workbench.kernels.conv.channels_last.config import ChannelsLastConfig

ELEMENTS = {torch.float16: "f16", torch.bfloat16: "bf16"}
TILES = ((128, 128), (128, 64), (64, 64))  # output pixels x filters
NAMES = {"x": "x", "w": "weight"}
Pair = int | tuple[int, int]


@functools.cache
def configure(dtype: torch.dtype, tile: tuple[int, int]) -> ChannelsLastConfig:
    """Three stages, 64 deep, of a tile of (output pixels, filters)."""
    pixels, filters = tile
    return ChannelsLastConfig(element=ELEMENTS[dtype], tile_m=pixels, tile_n=filters, tile_k=64, stages=3)


def choose_tile(pixels: int, filters: int) -> tuple[int, int]:
    """Small tiles where there are few pixels, so that there are CTAs for all SMs; narrow ones for few filters."""
    return TILES[2] if pixels <= 2048 else TILES[1] if filters <= 64 else TILES[0]


def conv2d(
    x: torch.Tensor, weight: torch.Tensor, stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1
) -> torch.Tensor:
    """torch.nn.functional.conv2d without bias and groups.

    x (images, channels, height, columns), weight (filters, channels, R, S), result (images, filters, P, Q) of x's type,
    all in memory order channels_last, float16 or bfloat16, summed in float32; stride, padding and dilation are one
    number or (vertical, horizontal). Raises ValueError, and TypeError for dtypes, for what the kernel does not take.
    """
    if x.dtype not in ELEMENTS or weight.dtype != x.dtype:
        raise TypeError(f"conv2d takes float16 or bfloat16, both the same, not {x.dtype} and {weight.dtype}")
    (rows, columns), *_ = host.plan_output(NAMES, x, weight, stride, padding, dilation)
    config = configure(x.dtype, choose_tile(x.shape[0] * rows * columns, weight.shape[0]))
    y: torch.Tensor = host.conv2d(config, NAMES, x, weight, stride, padding, dilation)
    return y


def main(arguments: list[str] | None = None) -> None:
    """Convolve small integers, whose sums are exact; check against torch in float64."""
    parser = argparse.ArgumentParser(description="implicit GEMM convolution")
    for name, default in (("batch", 2), ("channels", 24), ("filters", 40), ("size", 13)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    cases: tuple[tuple[torch.dtype, tuple[int, int], dict[str, Pair]], ...] = (
        (torch.float16, (3, 3), {"padding": 1}),
        (torch.bfloat16, (3, 2), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    )
    for dtype, window, settings in cases:
        x, weight = (
            torch.randint(-2, 3, shape, device="cuda").to(dtype).contiguous(memory_format=torch.channels_last)
            for shape in (
                (options.batch, options.channels, options.size, options.size + 2),
                (options.filters, options.channels, *window),
            )
        )
        exact = torch.nn.functional.conv2d(x.double(), weight.double(), **settings).to(dtype)
        same = torch.equal(conv2d(x, weight, **settings), exact)
        print(f"{dtype} {window} {settings}: equal {same}")
        assert same


if __name__ == "__main__":
    main()
