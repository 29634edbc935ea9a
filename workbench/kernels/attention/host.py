"""Host side shared by the attention kernels: checks of q, k and v, and their 4-d views.

q is (batch, heads, queries, dim), k and v are (batch, key heads, keys, dim). Missing leading axes count as 1. Several
heads of q may share one head of k and v (grouped-query attention). Raises ValueError for shapes and TypeError for
dtypes that no kernel supports.
"""

import torch

from workbench.kernels.host import DynamicTensor, check_operand, check_rank
from workbench.kernels.static import Static


def to_4d(tensor):
    """Return the tensor as (batch, heads, rows, dim), contiguous along dim."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor if tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)


def check_attention_operands(names: Static, q, k, v):
    """Check that q, k and v, each with 4 axes, have matching shapes and one dtype."""
    check_rank(names["q"], q, 4, 4)
    check_rank(names["k"], k, 4, 4)
    check_operand(names["q"], q, q.shape)
    same_dtype = q.dtype == k.dtype and q.dtype == v.dtype
    same_batch = k.shape == v.shape and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not same_dtype or not same_batch or q.shape[1] % k.shape[1]:
        given = f"q {q.dtype} {tuple(q.shape)}, k {k.dtype} {tuple(k.shape)}, v {v.dtype} {tuple(v.shape)}"
        wanted = "one dtype; k and v of one shape, with q's batch and dim, and heads that divide q's"
        raise ValueError(f"{given}: {wanted}")


def check_head_dim(tensor, dtype, about):
    """Check that the head dimension is at most 256 and that the dtype is `dtype`, unless that is None.

    `about` names the supported dtypes in the message.
    """
    dim = tensor.shape[3]
    if dim > 256 or (dtype is not None and tensor.dtype != dtype):
        raise ValueError(
            f"this kernel is for {about} and head dimensions up to 256, not for {tensor.dtype} and {dim}; "
            ".schedule(stages) takes any dimension"
        )


def view_4d(tensor):
    """Return the CuTe tensor of a 4-d tensor, with dynamic shape."""
    return DynamicTensor(tensor.detach(), leading_dim=3)
