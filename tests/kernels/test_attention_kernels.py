"""Attention kernels, run directly from the library on the emulator and compared with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from workbench.emulator import emulated
from workbench.kernels.attention.config import SimtConfig, Sm80Config, Sm90Config

NAMES = {"q": "q", "k": "k", "v": "v"}
SHAPES = ((1, 2, 40, 24), (1, 1, 67, 24), (1, 1, 67, 24))  # odd lengths, a head of k and v for two of q


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("config", "dtype", "error"),
    [
        (SimtConfig(causal=True, scale=0.3, tile_m=32, tile_n=32), torch.float32, 1e-5),
        (Sm80Config(element="tf32", causal=False, warps=2, most_keys=32, smem_bytes=165_888), torch.float32, 3e-3),
        (Sm90Config(element="bf16", causal=True, mma_warpgroups=1, stages=2, smem_bytes=232_448), torch.bfloat16, 2e-2),
    ],
)
def test_attention(config: Any, dtype: torch.dtype, error: float) -> None:
    from workbench.kernels.attention.simt import attention_simt
    from workbench.kernels.attention.sm80 import attention_sm80
    from workbench.kernels.attention.sm90.host import attention_sm90

    torch.manual_seed(0)
    attention = {SimtConfig: attention_simt, Sm80Config: attention_sm80, Sm90Config: attention_sm90}[type(config)]
    operands = [torch.randn(shape).to(dtype) for shape in SHAPES]
    with emulated(arch="sm_90a", device="H200") as emulation:
        out = attention(config, NAMES, *operands, ())
    expected = scaled_dot_product_attention(
        *(operand.double() for operand in operands), is_causal=config.causal, scale=config.scale, enable_gqa=True
    )
    assert (out.double() - expected).abs().max() < error
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
