"""What the Hopper tests run: GEMMs as (dtype, tile, CTAs of a cluster, (m, n, k), contiguous dimensions of A and B),
tensors and boxes to copy.
"""

import torch

GEMMS = [
    (torch.bfloat16, (128, 128, 64), 1, (200, 136, 160), (1, 1)),
    (torch.float16, (128, 128, 64), 2, (392, 264, 72), (1, 1)),
    (torch.float16, (128, 64, 64), 1, (136, 136, 72), (0, 1)),
    (torch.bfloat16, (128, 64, 64), 2, (136, 136, 72), (0, 0)),
    (torch.float16, (128, 192, 64), 2, (300, 264, 72), (1, 0)),
    (torch.float8_e4m3fn, (128, 64, 128), 1, (136, 72, 96), (1, 1)),
    (torch.float8_e5m2, (128, 64, 128), 2, (136, 72, 96), (1, 1)),
    (torch.int8, (128, 64, 128), 1, (136, 72, 96), (1, 1)),
    (torch.float16, (128, 32, 32), 1, (128, 32, 40), (1, 1)),
    (torch.float16, (128, 64, 32), 4, (500, 64, 40), (1, 1)),
]
BOXES = [
    ((104,), (32,)),
    ((5, 72), (32, 4)),
    ((3, 5, 40), (16, 2, 2)),
    ((2, 3, 5, 24), (8, 2, 2, 2)),
    ((2, 2, 3, 5, 24), (8, 2, 2, 2, 2)),
]


def matrix(rows: int, columns: int, dtype: torch.dtype, major: int, seed: int) -> torch.Tensor:
    """Small integers; `major` is the contiguous dimension."""
    values = torch.randint(-4, 5, (rows, columns), generator=torch.Generator().manual_seed(seed)).to(dtype)
    return values if major == 1 else values.t().contiguous().t()
