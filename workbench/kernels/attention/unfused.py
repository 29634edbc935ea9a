"""Attention in three kernels, for large head dimensions: scores = q @ k^T, softmax in place, out = scores @ v.

Both products use a GEMM of the library. The scores pass through global memory: 4 x queries x keys elements of traffic
beyond the operands.
"""

import math

import torch

from workbench.kernels.attention.host import check_attention_operands, to_4d
from workbench.kernels.attention.softmax import softmax
from workbench.kernels.gemm.host import gemm
from workbench.kernels.gemm.sm90.host import gemm as gemm_sm90
from workbench.kernels.host import DynamicTensor, call, split_by_rows
from workbench.kernels.static import Static, bind


def merge_heads(tensor):
    """Merge (batch, heads, rows, columns) to (batch * heads, rows, columns)."""
    return tensor.detach().flatten(0, 1)


def multiply(cfg: Static, a, b):
    """Return the batched product a @ b."""
    if cfg.on_sm90:
        return gemm_sm90(cfg.product, cfg.product_names, a, b, ())
    return gemm(cfg.product, cfg.product_names, a, b, ())


def softmax_scores(cfg: Static, scores, scale):
    """Replace each row of scores (batch * heads, queries, keys) by softmax(scale * row), in place."""
    queries, keys = scores.shape[1:]
    width = math.gcd(16 // scores.element_size(), keys)
    threads = 32 if keys <= 1024 else 256 if keys <= 16384 else 1024
    turns = -(-keys // (width * threads))
    for parts in split_by_rows(scores.view(-1, queries * keys)):
        part = parts[0]
        call(
            bind(softmax, cfg),
            (scores.dtype, threads, width, turns),
            (
                DynamicTensor(part.view(-1), align=width * part.element_size()),
                scale,
                part.shape[0] * queries,
                queries,
                keys,
            ),
            (threads, width, turns),
        )


def attention_unfused(cfg: Static, names: Static, q, k, v):
    """Return softmax(scale * q @ k^T) @ v, of q's shape and dtype.

    k and v must have as many heads as q; raises ValueError otherwise.
    """
    q4, k4, v4 = to_4d(q), to_4d(k), to_4d(v)
    check_attention_operands(names, q4, k4, v4)
    if q.numel() == 0 or k.numel() == 0:
        return torch.zeros(q.shape, dtype=q.dtype, device=q.device)  # no keys: the sum over them is zero
    if k4.shape[1] != q4.shape[1]:
        raise ValueError(
            f"{q4.shape[1]} heads of q and {k4.shape[1]} of k: this kernel wants as many; "
            ".schedule(flash) or no schedule lets heads share"
        )
    scale = q.shape[-1] ** -0.5 if cfg.scale is None else cfg.scale
    scores = multiply(cfg, merge_heads(q4), merge_heads(k4).transpose(-2, -1))
    softmax_scores(cfg, scores, scale)
    return multiply(cfg, scores, merge_heads(v4)).view(q.shape)
