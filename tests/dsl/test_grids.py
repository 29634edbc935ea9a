"""Grids are one-dimensional: the y and z extents are limited to 65535.

Rows of a product, heads and batches can exceed that limit.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from running import launched

FLASH = ".arch(sm_90a) .mma(f16) .schedule(flash) .tile(64, 64)"
HOPPER = ".arch(sm_90a) .mma(tf32) .tile(64, 32, 32) .schedule(cooperative)"
CASES: list[tuple[str, tuple[tuple[int, ...], ...], Callable[..., torch.Tensor], tuple[int, ...]]] = [
    ("gemm(a, b)", ((3, 20, 5), (3, 5, 40)), torch.matmul, (2 * 3 * 3,)),
    ("gemm(a, b) .tile(32, 32, 16) .thread_tile(2, 2)", ((3, 40, 5), (3, 5, 70)), torch.matmul, (3 * 2 * 3,)),
    ("gemm(a, b) .tile(64, 64, 32) .mma(tf32)", ((2, 70, 5), (2, 5, 70)), torch.matmul, (2 * 2 * 2,)),
    ("gemm(a, b) .tile(64, 64, 32) .mma(tf32) .stages(2)", ((2, 70, 5), (2, 5, 70)), torch.matmul, (2 * 2 * 2,)),
    (
        f"gemm(a, b) {HOPPER} >> rowsum()",
        ((2, 40, 37), (2, 37, 33)),
        lambda a, b: (a @ b).sum(-1),
        (2 * 2 * 2, 2 * 2 * 2, 2 * 2),
    ),
    (
        "attention(a, b, b) .tile(32, 32)",
        ((2, 3, 40, 16), (2, 3, 9, 16)),
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        (2 * 3 * 2,),
    ),
    (
        "attention(a, b, b) .mma(tf32) .tile(32, 16)",
        ((2, 3, 40, 16), (2, 3, 9, 16)),
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        (2 * 3 * 2,),
    ),
    ("reduce(a, op=sum, axis=middle) .threads(32)", ((3, 4, 40),), lambda a: a.sum(1), (2 * 3,)),
    ("scan(a, axis=1) .threads(32)", ((3, 4, 40),), lambda a: a.cumsum(1), (2 * 3,)),
    ("conv(a, b) .threads(32)", ((2, 3, 8, 8), (5, 3, 3, 3)), F.conv2d, (2 * 5,)),
    (
        "conv(a, b, groups=3) .threads(32) .rows(4) .filters(2)",
        ((2, 3, 8, 40), (9, 1, 3, 3)),
        lambda x, w: F.conv2d(x, w, groups=3),
        (3 * 2 * 3,),
    ),
    (
        "pool(a, window=size(1, 3), stride=1) .schedule(strip) .threads(64) .rows(1)",
        ((3, 2, 300),),
        lambda a: F.max_pool2d(a, (1, 3), 1),
        (),
    ),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("text", "shapes", "wanted", "counts"), CASES)
def test_results_and_ctas(
    text: str, shapes: tuple[tuple[int, ...], ...], wanted: Callable[..., torch.Tensor], counts: tuple[int, ...]
) -> None:
    tensors = tuple(torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(1)).float() for shape in shapes)
    got, emulation = launched(text, tensors, ("a", "b")[: len(shapes)])
    torch.testing.assert_close(got, wanted(*tensors), rtol=2e-3, atol=2e-3)
    assert all(launch.grid[1] == 1 for launch in emulation.launches)
    mine = [launch.grid[0] for launch in emulation.launches if launch.grid[2] == 1 or "conv" in text]
    assert sorted(mine) == sorted(counts) or not counts


def test_copies_of_attention_s_operands() -> None:
    q, k, v = (torch.randn(2, 3, 20, 20).half()[..., :12] for _ in range(3))
    got, emulation = launched(f"attention(q, k, v) {FLASH}", (q, k, v), ("q", "k", "v"))
    torch.testing.assert_close(
        got, F.scaled_dot_product_attention(q.float(), k.float(), v.float()).half(), rtol=1e-2, atol=1e-2
    )
    assert [launch.grid for launch in emulation.launches][:3] == [(3 * 3 * 2, 1, 1)] * 3


def test_more_than_the_other_axes_hold() -> None:
    a, b = torch.randn(8 * 65535 + 1, 1), torch.randn(1, 1)
    got, emulation = launched("gemm(a, b)", (a, b), ("a", "b"))
    assert torch.equal(got, a * b) and emulation.launches[0].grid == (65536, 1, 1)
    x = torch.randn(65536, 2, 1)
    got, emulation = launched("reduce(x, op=sum, axis=middle) .threads(32)", (x,), ("x",))
    assert torch.equal(got, x.sum(1)) and emulation.launches[0].grid == (65536, 1, 1)
