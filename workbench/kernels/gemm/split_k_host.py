"""Host side of the sm_80 product with k split over CTAs: checks, slices, the workspace, the launch."""

import math

import cutlass
import torch

from workbench.kernels.gemm.split_k_sm80 import launch_split_k
from workbench.kernels.host import DynamicTensor, call, check_operand, check_rank
from workbench.kernels.static import Static, bind, torch_dtype
from workbench.kernels.tensors import device_key, expect_on_device, view_flat, zero_counters


def choose_splits(cfg: Static, m, n, k, sms):
    """Return as many slices of k as fill the SMs, with at least `min_k_tiles` k tiles each."""
    tiles = -(-m // cfg.tile_m) * -(-n // cfg.tile_n)
    return max(1, min(cfg.ctas_per_sm * sms // tiles, -(-k // cfg.tile_k) // cfg.min_k_tiles))


def access_elements(matrix):
    """Return the elements of the widest access (1, 2, 4 or 8) that is aligned in every line of a 16-bit matrix."""
    along = 1 if matrix.stride(1) == 1 else 0
    pitch = matrix.stride(1 - along) if matrix.shape[1 - along] > 1 else 8
    return math.gcd(8, matrix.shape[along], pitch, matrix.data_ptr() // 2)


def contiguous_lines(matrix):
    """Return the matrix, contiguous along one axis; it is copied if no axis is contiguous."""
    if 1 not in matrix.stride() or (matrix.stride(1) != 1 and matrix.shape[0] == 1):
        return matrix.contiguous()
    return matrix


def view_matrix(matrix, width):
    """A matrix for CuTe with dynamic shape and pitch, aligned for accesses of `width` 16-bit elements."""
    leading = 1 if matrix.stride(1) == 1 else 0
    return DynamicTensor(matrix.detach(), align=2 * width, leading_dim=leading)


def expect_product(cfg: Static, names: Static, a, b):
    """Refuse operands that are not matrices of the configured type that can be multiplied."""
    check_rank(names["a"], a, 2, 2)
    check_rank(names["b"], b, 2, 2)
    check_operand(names["a"], a, a.shape, (torch_dtype(cfg.element),))
    check_operand(names["b"], b, (a.shape[1], b.shape[1]), (torch_dtype(cfg.element),))
    expect_on_device(a, b)
    if 0 in (*a.shape, *b.shape):
        raise ValueError(f"a product of {tuple(a.shape)} and {tuple(b.shape)}: an extent is 0")


def split_k_product(cfg: Static, names: Static, a, b, splits):
    """a (m, k) @ b (k, n) of the configured type, summed in float32; `splits` CTAs share a tile of d.

    Each operand is contiguous along one of its axes, or it is copied. The result is float32 where slices are added by
    atomics, else of a's type.
    """
    expect_product(cfg, names, a, b)
    (m, k), n = a.shape, b.shape[1]
    a, bt = contiguous_lines(a), contiguous_lines(b.t())
    k_tiles = -(-k // cfg.tile_k)
    per_split = -(-k_tiles // splits)
    splits = -(-k_tiles // per_split)  # no slice is empty
    if cutlass.const_expr(cfg.atomic):
        d, is_split = torch.zeros(m, n, dtype=torch.float32, device=a.device), True
    else:
        d, is_split = torch.empty(m, n, dtype=a.dtype, device=a.device), splits > 1
    tiles = -(-m // cfg.tile_m) * -(-n // cfg.tile_n)
    # slices that are added by atomics, and a single one, need no workspace
    slots = splits * tiles * cfg.tile_m * cfg.tile_n if is_split and not cfg.atomic else 4
    partials = torch.empty(slots, dtype=torch.float32, device=a.device)
    widths, along_k = (access_elements(a), access_elements(bt)), (a.stride(1) == 1, bt.stride(1) == 1)
    pairs = n % 2 == 0
    call(
        bind(launch_split_k, cfg),
        (device_key(), is_split, along_k, widths, pairs),
        (
            view_matrix(a, widths[0]),
            view_matrix(bt, widths[1]),
            view_flat(d, d.element_size() * (2 if pairs else 1)),
            view_flat(partials, 16),
            view_flat(zero_counters(a.device, tiles), 4),
            m,
            n,
            k,
            per_split,
            splits,
        ),
        (is_split, along_k, widths, pairs),
    )
    return d
