"""attention with a mask: every kernel against torch on the emulator, and what the planner makes of masks."""

from __future__ import annotations

import math

import pytest
import torch
from emitted import run_on
from torch.nn.functional import scaled_dot_product_attention

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
ERRORS = {HALF: 2e-3, BRAIN: 1.6e-2, SINGLE: 3e-3}
NAMES = ("q", "k", "v", "mask")
FLASH = ".mma(bf16) .schedule(flash) .tile(64, 64)"
HIDDEN = ", hide=zero, empty=zero"


def make_mask(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A mask of bools with rows of False, or of numbers with rows and elements of -inf."""
    hides = torch.rand(shape) < 0.3
    if shape[-2] > 1:
        hides[..., 3, :] = True
    if dtype == torch.bool:
        return ~hides
    return torch.randn(shape).masked_fill(hides, -math.inf).to(dtype)


def expected_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, **more: object) -> torch.Tensor:
    """What torch computes in float64."""
    mask = mask if mask.dtype == torch.bool else mask.double()
    return scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask, enable_gqa=True, **more)


CASES = [
    # settings, shape of the mask, its dtype, dtype of q
    (".tile(32, 32)", (2, 1, 1, 50), torch.bool, SINGLE),
    (".tile(32, 32)", (1, 2, 37, 50), SINGLE, HALF),
    (".mma(tf32) .tile(32, 32)", (2, 1, 37, 50), torch.bool, SINGLE),
    (".mma(tf32) .tile(32, 16)", (37, 50), SINGLE, SINGLE),
    (".mma(bf16) .tile(32, 16)", (1, 2, 1, 51), torch.bool, BRAIN),
    (".mma(bf16) .tile(32, 32)", (2, 2, 37, 50), BRAIN, BRAIN),
    (".mma(f16) .tile(32, 32)", (2, 1, 37, 51), HALF, HALF),
    (FLASH, (2, 1, 37, 150), torch.bool, BRAIN),
    (FLASH, (1, 2, 37, 135), SINGLE, BRAIN),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("settings", "shape", "dtype", "operands"), CASES)
def test_against_torch(settings: str, shape: tuple[int, ...], dtype: torch.dtype, operands: torch.dtype) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 2, 37, 24).to(operands)
    k, v = (torch.randn(2, 1, shape[-1], 24).to(operands) for _ in range(2))
    mask = make_mask(shape, dtype)
    how = HIDDEN if dtype == torch.bool else ", empty=zero"
    result = run_on(f"attention(q, k, v, mask=mask{how}) .arch(sm_90a) {settings}", (q, k, v, mask), NAMES)
    allowed = ERRORS[operands] if "mma" in settings else {SINGLE: 1e-5}.get(operands, 1e-3)
    torch.testing.assert_close(result.double(), expected_of(q, k, v, mask), rtol=0, atol=allowed)
