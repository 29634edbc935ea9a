"""TMA's im2col mode: the matrix of a convolution, against torch's padding and slicing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from workbench.emulator.hook import emulated

sys.path.insert(0, str(Path(__file__).parent / "hopper"))
Space = tuple[int, int, int]  # along w, h, d


@pytest.mark.parametrize(
    ("shape", "filters", "before", "after", "stride", "dilation"),
    [
        ((2, 4, 5, 6, 64), (3, 3, 2), (1, 1, 0), (1, 1, 0), (1, 1, 1), (1, 1, 1)),
        ((2, 4, 5, 6, 32), (3, 2, 2), (1, 1, 0), (0, 1, 1), (2, 1, 2), (1, 1, 1)),
        ((3, 4, 5, 9, 32), (3, 2, 2), (2, 1, 0), (1, 1, 1), (2, 3, 1), (2, 1, 2)),
        ((1, 1, 7, 11, 64), (1, 3, 1), (0, 2, 0), (0, 0, 0), (1, 1, 1), (1, 2, 1)),
    ],
)
def test_columns_of_a_convolution(
    shape: tuple[int, ...], filters: Space, before: Space, after: Space, stride: Space, dilation: Space
) -> None:
    from cutlass.cute.runtime import from_dlpack
    from im2col import Im2Col

    _, d, h, w, c = shape
    x = torch.randint(1, 200, shape, generator=torch.Generator().manual_seed(1)).half()
    sizes = [
        (size + b + a - (f - 1) * gap - 1) // by + 1
        for size, b, a, f, gap, by in zip((w, h, d), before, after, filters, dilation, stride, strict=True)
    ]
    padded = torch.nn.functional.pad(x, (0, 0, before[0], after[0], before[1], after[1], before[2], after[2]))

    def tap(place: Space) -> torch.Tensor:
        cut = [
            slice(p * gap, p * gap + (size - 1) * by + 1, by)
            for p, gap, size, by in zip(place, dilation, sizes, stride, strict=True)
        ]
        return padded[:, cut[2], cut[1], cut[0]].reshape(-1, c)

    expected = torch.cat(
        [tap((s, r, t)) for t in range(filters[2]) for r in range(filters[1]) for s in range(filters[0])], dim=1
    )
    y = torch.full_like(expected, -1)
    with emulated(arch="sm_90a", device="H200"):
        Im2Col(filters, before, after, stride, dilation)(
            from_dlpack(x, assumed_align=16), from_dlpack(y, assumed_align=16)
        )
    assert torch.equal(y, expected)
