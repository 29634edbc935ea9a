"""Matrix product with the depth k split over CTAs, for products with few output tiles and a large k.

d (m, n) = a (m, k) @ b (k, n), float16 or bfloat16. The kernel is `workbench.kernels.gemm.split_k_sm80`; this module
configures, calls and checks it.

One CTA per 128 x 128 tile of d leaves most SMs idle when d is small. So `splits` CTAs share a tile, each with a slice
of k (`choose_splits`). Every CTA runs the usual multistage loop: 128 threads copy 64-deep tiles of a and b with
cp.async, 16 bytes each, into swizzled shared memory, two tiles ahead (`load_tile`); ldmatrix brings fragments to
registers without bank conflicts, mma.sync multiplies them and accumulates in float32 (`multiply_stage`). Then the
slices' partial tiles have to be added up, in one of two ways:

atomic          each CTA adds its tile to a float32 result in global memory with red.add (`add_sums`). No workspace, but
                the order of the additions, and so the last bits, vary.
deterministic   each CTA writes its tile to a workspace, in the order of its registers (neighbouring threads side by
                side: coalesced, whatever the layout of fragments), and counts itself at the tile's semaphore. The CTA
                that counts last knows that all slices are there: it adds them in the order of the slices, so that the
                result is the same in every run, converts it and stores it (`add_slices`). It leaves the semaphore at 0.

Where k, or the rows' pitch, is not a multiple of 8 elements, copies get narrower: 8 or 4 bytes, and for odd ones 2
bytes through registers (`copy_or_zero`).

    python -m workbench.examples.split_k --m 200 --n 136 --k 1001
"""

import argparse
import functools

import torch

from workbench.kernels.gemm.config import SplitKConfig
from workbench.kernels.gemm.split_k_host import choose_splits, split_k_product
from workbench.kernels.tensors import count_sms

LARGE, SMALL = (128, 128), (64, 64)  # tiles of d
ELEMENTS = {torch.float16: "f16", torch.bfloat16: "bf16"}


@functools.cache
def configure(dtype: torch.dtype, tile: tuple[int, int], deterministic: bool = True) -> SplitKConfig:
    """Three stages, 64 deep, of a tile of (m, n); slices are added in their order, or by atomics."""
    m, n = tile
    return SplitKConfig(element=ELEMENTS[dtype], tile_m=m, tile_n=n, tile_k=64, stages=3, atomic=not deterministic)


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
    (64, 64). Raises ValueError, and TypeError for dtypes, for what the kernel does not take.
    """
    if a.dtype not in ELEMENTS or b.dtype != a.dtype:
        raise TypeError(f"matmul takes float16 or bfloat16, both the same, not {a.dtype} and {b.dtype}")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul takes (m, k) and (k, n), not {tuple(a.shape)} and {tuple(b.shape)}")
    (m, k), n = a.shape, b.shape[1]
    tile = tile or (LARGE if min(m, n) > 64 else SMALL)
    if tile not in (LARGE, SMALL):
        raise ValueError(f"tile must be {LARGE} or {SMALL}, not {tile}")
    config = configure(a.dtype, tile, deterministic)
    if splits is None:
        splits = choose_splits(config, m, n, k, count_sms(a.device)) if a.is_cuda and min(m, n, k) > 0 else 1
    if splits < 1:
        raise ValueError(f"splits must be positive, not {splits}")
    d: torch.Tensor = split_k_product(config, {"a": "a", "b": "b"}, a, b, splits)
    return d


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
