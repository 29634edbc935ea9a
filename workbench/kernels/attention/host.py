"""What the host side of every attention kernel shares: checks of q, k and v, and their views.

q (batch, heads, queries, dim), k and v (batch, key heads, keys, dim); axes missing in front count as 1, and several
heads of q may share one of k and v. Errors are ValueError, and TypeError for dtypes that no kernel takes.
"""

import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.host import expect, expect_axes
from workbench.kernels.static import Static


def to_4d(tensor):
    """The tensor as (batch, heads, rows, dim), contiguous along dim."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor if tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)


def expect_attention(names: Static, q, k, v):
    """Refuse q, k and v, each with 4 axes, that do not fit together."""
    expect_axes(names["q"], q, 4, 4)
    expect_axes(names["k"], k, 4, 4)
    expect(names["q"], q, q.shape)
    same_dtype = q.dtype == k.dtype and q.dtype == v.dtype
    same_batch = k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not same_dtype or not same_batch or q.shape[1] % k.shape[1]:
        given = f"q {q.dtype} {tuple(q.shape)}, k {k.dtype} {tuple(k.shape)}, v {v.dtype} {tuple(v.shape)}"
        wanted = "one dtype; k and v of one shape, with q's batch and dim, and heads that divide q's"
        raise ValueError(f"{given}: {wanted}")


def expect_dim(tensor, dtype, about):
    """Refuse a head dimension over 256, and a dtype other than `dtype` unless that is None.

    `about` names the legal dtypes.
    """
    dim = tensor.shape[3]
    if dim > 256 or (dtype is not None and tensor.dtype != dtype):
        raise ValueError(
            f"this kernel is for {about} and head dimensions up to 256, not for {tensor.dtype} and {dim}; "
            ".schedule(stages) takes any dimension"
        )


def view_4d(tensor):
    """The tensor for CuTe, with dynamic sizes."""
    return from_dlpack(tensor.detach()).mark_layout_dynamic(leading_dim=3)
