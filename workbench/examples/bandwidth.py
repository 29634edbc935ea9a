"""How fast can all SMs together read from L2, and each from its shared memory?

Two kernels that do nothing but read, `workbench.kernels.bandwidth`; `cutegen calibrate` times them in the
configurations below.

L2 (`l2_kernel`). The data fit into L2 (one chunk for each CTA). In every pass a CTA reads the chunk of the next CTA, so
that what it reads is never in its own L1: only L2 has it. Each thread keeps `unroll` loads of 16 bytes in flight; a
warp's request is 512 contiguous bytes. What was read is added up, so that the compiler cannot leave it out, and so that
the result can be checked: over all passes every CTA reads `passes` chunks, and every chunk is read `passes` times.

Shared memory (`shared_kernel`). Each CTA copies its tile there once, then its warps read 512 contiguous bytes at a time
(4 wavefronts of 128 bytes, no bank conflict), a warp beginning one group of rows further in every pass, so that the
compiler cannot keep a value in a register.

    python -m workbench.examples.bandwidth --passes 3
"""

import argparse
from collections.abc import Callable

import cutlass
import cutlass.cute as cute
import cutlass.torch
import torch

from workbench.kernels.bandwidth import host
from workbench.kernels.bandwidth.config import L2Config, SharedConfig
from workbench.kernels.bandwidth.kernel import launch_l2
from workbench.kernels.static import bind
from workbench.kernels.tensors import count_sms, view_flat

L2 = L2Config(threads=512, unroll=8, steps=2)  # chunks of 128 KiB
SHARED = SharedConfig(threads=512, unroll=8, rows=64)  # 32 KiB


def read_l2(x: torch.Tensor, passes: int, ctas: int | None = None) -> torch.Tensor:
    """Read x from L2 and return the sums of what each thread read.

    Each of `ctas` CTAs (one per chunk by default) reads `passes` chunks of x: float32, a multiple of `L2.chunk`
    elements, or ValueError.
    """
    sums: torch.Tensor = host.read_l2(L2, x, passes, ctas or x.numel() // L2.chunk)
    return sums


def read_shared(x: torch.Tensor, passes: int, ctas: int | None = None) -> torch.Tensor:
    """Read x from shared memory and return the sums of what each thread read.

    Every warp of each of `ctas` CTAs (four per SM by default) reads a group of rows of x (`SHARED.elements` float32, or
    ValueError), `passes` times.
    """
    sums: torch.Tensor = host.read_shared(SHARED, x, passes, ctas or 4 * count_sms(x.device))
    return sums


def compile_empty_launch() -> Callable[[], object]:
    """A compiled launch that reads nothing, with two tensors and three integers: what a launch costs the host."""
    x, sums = torch.zeros(L2.chunk, device="cuda"), torch.zeros(L2.threads, device="cuda")
    views = view_flat(x, 16), view_flat(sums, 16)
    arguments = (
        *(view.as_cute() for view in views),
        cutlass.Int32(1),
        cutlass.Int32(0),
        cutlass.Int32(1),
        cutlass.torch.current_stream(),
    )
    compiled = cute.compile(bind(launch_l2, L2), *arguments)
    return lambda: compiled(*arguments)


def main(arguments: list[str] | None = None) -> None:
    """Read small integers and compare the sums with torch's, exactly."""
    parser = argparse.ArgumentParser(description="read-only kernels for L2 and shared memory")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args(arguments)
    x = torch.randint(-2, 3, (3 * L2.chunk,), device="cuda").float()
    ours, exact = read_l2(x, options.passes).double().sum().item(), options.passes * x.double().sum().item()
    print(f"l2      ours {ours:g}  torch {exact:g}")
    assert ours == exact
    rows = torch.randint(-2, 3, (SHARED.elements,), device="cuda").float()
    groups = [(warp + turn) % SHARED.groups for turn in range(options.passes) for warp in range(SHARED.threads // 32)]
    ours = read_shared(rows, options.passes, 2).double().sum().item()
    exact = 2 * rows.view(SHARED.groups, -1).double().sum(1)[groups].sum().item()
    print(f"shared  ours {ours:g}  torch {exact:g}")
    assert ours == exact


if __name__ == "__main__":
    main()
