"""Grouped GEMM for Hopper (sm_90a): D_g = A_g @ B_g^T for many problems of different sizes in one launch.

A mixture of experts needs it. Shapes: A_g (m_g, k_g), B_g (n_g, k_g), D_g (m_g, n_g), all contiguous along their last
dimension; dtypes as in `gemm_hopper`. The kernel is `workbench.kernels.gemm.sm90.grouped_problems`; pipeline, main loop
and epilogue are those of `workbench.kernels.gemm.sm90`. This module configures, checks and runs it.

What is new is that TMA needs a *descriptor* (tensor map: address, sizes, strides, box) for each tensor, and a launch
has room for a few kernel parameters only. So the kernel writes descriptors itself. The host's table has the addresses,
sizes and strides of all problems, and how many tiles come before each (`tabulate`). CTAs are persistent and walk over
the tiles of all problems; a warp that comes to a tile of another problem than before (`publish`)

1. edits a copy of a descriptor in shared memory (`tensormap.replace`: address, sizes, strides; box, swizzle and type
   stay those of the launch's own descriptor),
2. publishes it to global memory, where TMA takes descriptors from (`tensormap.cp_fenceproxy`, a copy that releases to
   the tensormap proxy),
3. acquires it there (`fence.proxy.tensormap ... acquire`), since TMA has a cache of descriptors that knows nothing of
   ordinary stores,
4. and only then issues copies with it.

The producer warp does so for A and B (`load_problems`), and the first warp of each consumer warpgroup for D
(`multiply_problems`): no warp waits for another.

A descriptor must not change under a copy that still uses it. Each warp has a ring of `stages` + 1 places in global
memory (`map_at`): when a place comes round again, at least `stages` later loads have found their stage free, so the
loads with the place's old descriptor have arrived. Stores are read out of shared memory even sooner.

    python -m workbench.examples.grouped_gemm --problems 2 --size 64
"""

import argparse
from collections.abc import Callable, Sequence

import torch

from workbench.examples.gemm_hopper import DTYPES, aligned, check, configure
from workbench.kernels.gemm.sm90.config import default_tile
from workbench.kernels.gemm.sm90.grouped_problems.host import compile_problems, launch_problems, prepare_operands

Problem = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def prepare(
    problems: Sequence[Problem],
    *,
    tile: tuple[int, int, int] | None = None,
    cluster: tuple[int, int] = (2, 1),
    swizzle: int = 8,
    max_clusters: int | None = None,
) -> Callable[[], None]:
    """A function that computes d = a @ b.T for every (a, b, d), on the CUDA stream that is then current.

    Table, compiled kernel and descriptors' memory are made here. One launch of it at a time, since the descriptors'
    memory is its own. a (m, k), b (n, k), d (m, n), contiguous along the last dimension; all a and b of one dtype, all
    d of one. `max_clusters`: no more than these, for tests. Raises ValueError for what TMA does not take: an address or
    a row that is no multiple of 16 bytes (k * size % 16 == 0 and n * size of D % 16 == 0 where rows follow one
    another).
    """
    a, _, d = problems[0]
    tile = tile or default_tile("" if a.element_size() > 1 else "e4m3")
    check_problems(problems, tile, cluster)
    config = configure(a.dtype, d.dtype, tile=tile, cluster=cluster, swizzle=swizzle)
    operands = prepare_operands(config, problems, max_clusters or 1 << 16)
    compile_problems(config, operands)
    held = tuple(problems)  # the table has their addresses

    def launch() -> None:
        assert held  # the tensors live as long as this function
        launch_problems(config, operands)

    return launch


def check_problems(problems: Sequence[Problem], tile: tuple[int, int, int], cluster: tuple[int, int]) -> None:
    """Raises ValueError, saying what is wrong, for problems that one launch does not take."""
    for a, b, d in problems:
        check(a, b, None, d, tile, cluster)
        pairs = zip((a, b, d), problems[0], strict=True)
        if any(t.dtype != first.dtype or t.stride(1) != 1 or not aligned(t) for t, first in pairs):
            raise ValueError(
                "every problem has the first one's dtypes and is contiguous along the last dimension, with rows of a "
                "multiple of 16 bytes, D too"
            )


def grouped_gemm(
    problems: Sequence[Problem],
    *,
    tile: tuple[int, int, int] | None = None,
    cluster: tuple[int, int] = (2, 1),
    swizzle: int = 8,
    max_clusters: int | None = None,
) -> None:
    """d = a @ b.T for every (a, b, d) in one launch; `prepare` is the one to use where the same tensors come again."""
    prepare(problems, tile=tile, cluster=cluster, swizzle=swizzle, max_clusters=max_clusters)()


def main() -> None:
    """A few problems of different sizes, compared with torch in float64."""
    parser = argparse.ArgumentParser(description="Grouped GEMM for Hopper")
    parser.add_argument("--problems", type=int, default=4)
    parser.add_argument("--size", type=int, default=128, help="problem i has m, n and k near (i + 1) times this")
    parser.add_argument("--dtype", choices=list(DTYPES)[:4], default="bfloat16")
    options = parser.parse_args()
    problems = []
    for number in range(1, options.problems + 1):
        m, n, k = number * options.size - 3, number * options.size + 8, number * options.size // 2 + 16
        a, b = (torch.randint(-3, 4, shape, device="cuda").to(DTYPES[options.dtype]) for shape in ((m, k), (n, k)))
        problems.append((a, b, torch.empty((m, n), dtype=torch.bfloat16, device="cuda")))
    grouped_gemm(problems)
    for a, b, d in problems:
        torch.testing.assert_close(d, (a.double() @ b.double().t()).to(d.dtype), rtol=0, atol=0)
    print(f"{len(problems)} problems in one launch: equal to torch's, bit for bit")


if __name__ == "__main__":
    main()
