"""GEMM for Hopper (sm_90a): D = A @ B^T, or A @ B^T + C, the way the fastest kernels do it.

The kernel is `workbench.kernels.gemm.sm90`; this module configures, checks and runs it.

Shapes: A (m, k), B (n, k), C and D (m, n), row-major C and D. A and B in float16 or bfloat16 (K-major or MN-major, that
is, contiguous along k or along m and n), or both in float8_e4m3fn or both in float8_e5m2 (K-major). Sums are float32; D
is float16, bfloat16 or float32. Any m, n, k >= 1, but TMA asks for rows of a multiple of 16 bytes in A and B.

Who does what. A CTA computes one tile of D after the other; it has three warpgroups (of 128 threads) for the default
tile of 128 x 256:

- The *producer* warpgroup gives its registers away (`setmaxnreg`), and one warp of it issues TMA loads: for each step
  of 64 elements of k (128 bytes: the width of the widest swizzle) a tile of A and one of B into the next *stage* of
  shared memory. An mbarrier counts the bytes that arrive: "full" (`load_tiles`).
- Two *consumer* warpgroups own 64 rows of the tile each, with their sums in 128 registers a thread. They wait for
  "full", issue the step's wgmmas, and, one step later, when `wait_group(1)` has shown that the multiplication before
  the newest is done, arrive at the stage's "empty" mbarrier (`mainloop`). So a wgmma group is always in flight, and the
  tensor cores never wait for the issue of the next one.
- The producer runs ahead through the stages, also into the next tile: loads of tile i + 1 fly while the consumers store
  tile i.

Cluster. The two CTAs of a 2 x 1 cluster compute tiles one below the other, which need the same tile of B. Each loads
half of it and *multicasts* that half into the shared memory of both: half the traffic from L2 (`multicast_masks`).
"Empty" then counts the consumers of both CTAs, since a stage may be refilled only when no CTA reads it any more.

Epilogue (`store_tile`). Each consumer warpgroup converts 64 rows x 128 bytes of its sums at a time, writes them with
`stmatrix` into swizzled shared memory (no bank conflicts), and one thread stores them with TMA, which clips at the
edges of D. There are two such buffers a warpgroup: one is filled while TMA reads the other. Each thread loads its
elements of C into registers, one piece ahead of the sums they are added to. Where rows of D are not a multiple of 16
bytes, the threads store from shared memory themselves.

Tile order (`cluster_tile`). The grid is as large as the device holds clusters (*persistent*), and cluster c takes tiles
c, c + clusters, ... in bands of `swizzle` cluster columns, so that what runs at the same time is a near-square patch of
D: the fewest rows of A and B, which then stay in L2.

    python -m workbench.examples.gemm_hopper --m 130 --n 264 --k 80 --add
"""

import argparse
import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.gemm.sm90.config import GemmSm90Config, default_tile
from workbench.kernels.gemm.sm90.host import can_load_pairs, matrix_view, result_view
from workbench.kernels.gemm.sm90.kernel import launch_gemm
from workbench.kernels.gemm.sm90.pack import make_operands, max_active_clusters
from workbench.kernels.host import call
from workbench.kernels.operands import Read
from workbench.kernels.static import Static, bind

ELEMENTS = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float32: "f32",
}
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
HALVES = (torch.float16, torch.bfloat16)
MAX_STAGES = 8


def add_c(total, _vectors, slices, e, _tile, _place, _shape):
    """The epilogue: the sum and its element of C."""
    return total + slices[0][e].to(cutlass.Float32)


@functools.cache
def configure(
    dtype: torch.dtype,
    result: torch.dtype,
    *,
    tile: tuple[int, int, int],
    cluster: tuple[int, int],
    swizzle: int,
    stages: int | None = None,
    adds: bool = False,
) -> GemmSm90Config:
    """The kernel's configuration; `stages`: None for as many as fit, 8 at most; `adds`: whether C is added."""

    def with_stages(count: int) -> GemmSm90Config:
        return GemmSm90Config(
            kind=ELEMENTS[dtype],
            tile=tile,
            cluster=cluster,
            stages=count,
            raster="along_n",
            band=swizzle,
            cast=ELEMENTS[result],
            b_transposed=True,
            reads=(Read(role="c", along="both"),) if adds else (),
            epilogue=add_c if adds else None,
        )

    fit = with_stages(2).max_stages
    chosen = stages or min(fit, MAX_STAGES)
    if not 2 <= chosen <= fit:
        raise ValueError(f"{chosen} stages of tile {tile}: 2 to {fit} fit into shared memory")
    return with_stages(chosen)


@cute.jit
def launch(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    mC: cute.Tensor | None,
    mD: cute.Tensor,
    stream: cuda.CUstream,
    by_tma: cutlass.Constexpr,
    max_clusters: cutlass.Constexpr,
) -> None:
    """a (1, m, k), b (1, n, k), c and d (1, m, n)."""
    operands = () if cutlass.const_expr(mC is None) else (mC,)
    launch_gemm(cfg, mA, mB, operands, (), mD, stream, by_tma, max_clusters)


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    d: torch.Tensor,
    *,
    c: torch.Tensor | None = None,
    tile: tuple[int, int, int] | None = None,
    cluster: tuple[int, int] = (2, 1),
    swizzle: int = 8,
    stages: int | None = None,
    max_clusters: int | None = None,
) -> torch.Tensor:
    """d = a @ b.T (+ c), on the current CUDA stream; returns d. The first call of a configuration compiles (seconds).

    a (m, k), b (n, k), float16, bfloat16 or float8; d, c (m, n), float16, bfloat16 or float32, of one dtype; sizes are
    dynamic. `tile`: None means (128, 256, 128 bytes of k). `max_clusters`: no more than these, for tests. Raises
    ValueError for what TMA does not take: a base address or a row of a or b (the stride of the dimension that is not
    contiguous) that is no multiple of 16 bytes.
    """
    tile = tile or default_tile(ELEMENTS.get(a.dtype, ""))
    check(a, b, c, d, tile, cluster)
    config = configure(a.dtype, d.dtype, tile=tile, cluster=cluster, swizzle=swizzle, stages=stages, adds=c is not None)
    (left, left_along_k), (right, right_along_k) = make_operands(config, a, b)
    matrix, by_tma = None if c is None else c.detach().unsqueeze(0), aligned(d)
    clusters = min(max_clusters or 1 << 16, max_active_clusters(config))
    call(
        bind(launch, config),
        (matrix is not None and can_load_pairs(matrix), by_tma, left_along_k, right_along_k, clusters),
        (
            left,
            right,
            None if matrix is None else matrix_view(config, matrix),
            result_view(config, d.detach().unsqueeze(0), by_tma),
        ),
        (by_tma, clusters),
    )
    return d


def leading(t: torch.Tensor) -> int:
    """The contiguous dimension of a matrix."""
    return 1 if t.stride(1) == 1 else 0


def aligned(t: torch.Tensor) -> bool:
    """Whether TMA takes a matrix: its address and the stride of its other dimension are multiples of 16 bytes."""
    return bool(t.data_ptr() % 16 == 0 and t.stride(1 - leading(t)) * t.element_size() % 16 == 0)


def check(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    d: torch.Tensor,
    tile: tuple[int, int, int],
    cluster: tuple[int, int],
) -> None:
    """Raises ValueError, saying what is wrong, for operands and configurations that the kernel does not take."""
    (m, k), n = a.shape, b.shape[0]
    results = (d,) if c is None else (c, d)
    if b.shape[1] != k or any(tuple(t.shape) != (m, n) for t in results) or 0 in (m, n, k):
        raise ValueError(
            f"shapes a {tuple(a.shape)}, b {tuple(b.shape)}, d {tuple(d.shape)}: a is (m, k), b (n, k), c and d "
            "(m, n), none empty"
        )
    known = a.dtype in (*HALVES, *FLOAT8) and d.dtype in (*HALVES, torch.float32)
    if not known or b.dtype != a.dtype or any(t.dtype != d.dtype for t in results):
        raise ValueError(
            f"dtypes a {a.dtype}, b {b.dtype}, d {d.dtype}: a and b of one dtype, float16, bfloat16 or float8; c and d "
            "float16, bfloat16 or float32, the same"
        )
    if any(t.stride(1) != 1 for t in results) or any(1 not in t.stride() for t in (a, b)):
        raise ValueError("a and b are contiguous along one dimension, c and d along n")
    if a.dtype in FLOAT8 and (leading(a), leading(b)) != (1, 1):
        raise ValueError("float8 operands are contiguous along k: wgmma transposes 16-bit types only")
    for name, t in (("a", a), ("b", b)):
        if not aligned(t):
            raise ValueError(
                f"{name}: TMA needs an address and rows of a multiple of 16 bytes, but a row takes "
                f"{t.stride(1 - leading(t)) * t.element_size()} bytes: pad the contiguous dimension "
                "(k * size % 16 == 0 where it is k)"
            )
    check_tile(tile, cluster, a.element_size())


def check_tile(tile: tuple[int, int, int], cluster: tuple[int, int], element_bytes: int) -> None:
    """Raises ValueError for tiles that wgmma and the registers do not take, and for clusters that are too large."""
    m, n, k = tile
    fits = m in (64, 128, 256) and n in range(32, 257, 32) and m * n <= 128 * 256
    if not fits or k * element_bytes % 32:
        raise ValueError(
            f"tile {tile}: m is 64, 128 or 256, n a multiple of 32 up to 256, m * n up to 32768 (the registers of two "
            "warpgroups), k a multiple of 32 bytes"
        )
    if cluster[0] * cluster[1] > 8 or any(extent not in (1, 2, 4) for extent in cluster):
        raise ValueError(f"cluster {cluster}: 1, 2 or 4 CTAs along each of m and n, 8 at most")


DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float32": torch.float32,
}


def main() -> None:
    """One product, compared with torch in float64."""
    parser = argparse.ArgumentParser(description="GEMM for Hopper: D = A @ B^T")
    for name, default in (("m", 512), ("n", 512), ("k", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=list(DTYPES)[:4], default="bfloat16")
    parser.add_argument("--out", choices=["float16", "bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--add", action="store_true", help="add a matrix C")
    parser.add_argument("--tile", type=int, nargs=3)
    parser.add_argument("--cluster", type=int, nargs=2, default=(2, 1))
    options = parser.parse_args()
    m, n, k = options.m, options.n, options.k
    a, b = (torch.randint(-3, 4, shape, device="cuda").to(DTYPES[options.dtype]) for shape in ((m, k), (n, k)))
    d = torch.empty((m, n), dtype=DTYPES[options.out], device="cuda")
    c = torch.randint(-3, 4, (m, n), device="cuda").to(d.dtype) if options.add else None
    gemm(a, b, d, c=c, tile=tuple(options.tile) if options.tile else None, cluster=tuple(options.cluster))
    expected = a.double() @ b.double().t() + (0 if c is None else c.double())
    torch.testing.assert_close(d, expected.to(d.dtype), rtol=0, atol=0)
    print(f"{m} x {n} x {k}, {options.dtype}: equal to torch's, bit for bit")


if __name__ == "__main__":
    main()
