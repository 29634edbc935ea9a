"""Host side of top-k: checks, results, the launch."""

import torch

from workbench.kernels.host import call, check_operand, check_rank
from workbench.kernels.static import Static, bind
from workbench.kernels.tensors import access_width, device_key, expect_contiguous, view_flat
from workbench.kernels.top_k.kernel import launch_top_k


def top_k(cfg: Static, names: Static, x, k):
    """The k largest of each row of x (..., columns), largest first: (values, int64 indices), both (..., k).

    x is contiguous float32, float16 or bfloat16; 1 <= k <= 128 and k <= columns. Of equal elements the one with the
    lowest index comes first; NaN counts as larger than everything.
    """
    check_rows(names, x, k)
    expect_contiguous(x)
    return select_largest(cfg, x, k, (device_key(),))


def select_largest(cfg: Static, x, k, key):
    """Return values and indices of the k largest of each row of a checked tensor; `key` is of the compiled code."""
    columns = x.shape[-1]
    values = torch.empty((*x.shape[:-1], k), dtype=x.dtype, device=x.device)
    indices = torch.empty((*x.shape[:-1], k), dtype=torch.int64, device=x.device)
    rows = x.numel() // columns
    if rows == 0:
        return values, indices
    width = access_width(columns, x)
    warps = 1 if columns <= cfg.warp_columns else 8 if columns <= cfg.cta_columns else 32
    rows_per_cta = cfg.rows_per_cta if warps == 1 else 1
    blocks = -(-k // 32)
    call(
        bind(launch_top_k, cfg),
        (*key, x.dtype, blocks, warps, rows_per_cta, width),
        (
            view_flat(x, width * x.element_size()),
            view_flat(values, values.element_size()),
            view_flat(indices, 8),
            rows,
            columns,
            k,
        ),
        (blocks, warps, rows_per_cta, width),
    )
    return values, indices


def top_k_of_rows(cfg: Static, names: Static, x):
    """Return the `cfg.k` largest of each row of x, as `top_k` does; x need not be contiguous."""
    check_rows(names, x, cfg.k)
    return select_largest(cfg, x.detach().contiguous(), cfg.k, ())


def check_rows(names: Static, x, k):
    """Check the dtype of x, and that its rows have at least k elements."""
    check_operand(names["x"], x, x.shape)
    check_rank(names["x"], x, 1)
    columns = x.shape[-1]
    if not 1 <= k <= min(128, columns):
        raise ValueError(f"k must be from 1 to {min(128, columns)}, not {k}")
