"""sddmm and segment_softmax of torch tensors: check, allocate the result, launch."""

import math

import cutlass
import torch

from workbench.kernels.aggregate.host import as_vectors, check_graph
from workbench.kernels.graph_attention.sddmm import launch_sddmm
from workbench.kernels.graph_attention.softmax import launch_segment_softmax
from workbench.kernels.host import (
    FLOAT_DTYPES,
    INDEX_DTYPES,
    DynamicTensor,
    call,
    check_element_count,
    check_operand,
    check_rank,
)
from workbench.kernels.static import Static, bind


def sddmm(cfg: Static, names: Static, q, k, indptr, indices):
    """Return the score of each index e of a row r, in the dtype of k.

    dot: q[r] . k[indices[e]] of q (rows, columns) and k (nodes, columns); with (rows, heads, columns) one for each
    head. add: q[r] + k[indices[e]] of the same shape but for their first extent.
    """
    q, k = q.detach().contiguous(), k.detach().contiguous()
    indptr, indices = indptr.contiguous(), indices.contiguous()
    check_rank(names["k"], k, 1)
    check_operand(names["k"], k, k.shape, FLOAT_DTYPES)
    check_graph(names, indptr, indices)
    check_operand(names["q"], q, (indptr.numel() - 1, *k.shape[1:]), FLOAT_DTYPES)
    if cutlass.const_expr(cfg.op == "dot"):
        check_rank(names["k"], k, 2, 3)
        heads, columns, left = math.prod(k.shape[1:-1]), k.shape[-1], k.shape[1:-1]
    else:
        heads, columns, left = 1, math.prod(k.shape[1:]), k.shape[1:]
    y = torch.empty(indices.numel(), *left, dtype=k.dtype, device=k.device)
    if y.numel() == 0:
        return y
    if columns == 0:
        return y.fill_(0.0)
    if k.shape[0] == 0:
        raise ValueError(f"{names['k']} has no rows, and {names['indices']} has {indices.numel()}")
    check_element_count("the result", y)
    starts = (q.data_ptr() // q.element_size(), k.data_ptr() // k.element_size())
    width = math.gcd(columns, cfg.vector, 16 // max(q.element_size(), k.element_size()), *starts)
    if cutlass.const_expr(cfg.op == "dot"):
        result = DynamicTensor(y.view(-1))
    else:
        result = as_vectors(y, width)
    call(
        bind(launch_sddmm, cfg),
        (q.dtype, k.dtype, indptr.dtype, indices.dtype, width),
        (
            as_vectors(q, width),
            as_vectors(k, width),
            DynamicTensor(indptr),
            DynamicTensor(indices),
            result,
            indptr.numel() - 1,
            k.shape[0],
            heads,
            columns // width,
        ),
        (width,),
    )
    return y


def segment_softmax(cfg: Static, names: Static, scores, indptr):
    """Return the softmax of scores (indices) or (indices, heads) over the indices of each row, in their dtype."""
    scores, indptr = scores.detach().contiguous(), indptr.contiguous()
    check_rank(names["scores"], scores, 1, 2)
    check_operand(names["scores"], scores, scores.shape, FLOAT_DTYPES)
    check_rank(names["indptr"], indptr, 1, 1)
    check_operand(names["indptr"], indptr, indptr.shape, INDEX_DTYPES)
    y = torch.empty_like(scores)
    if y.numel() == 0:
        return y
    check_element_count(names["scores"], scores)
    heads = y.numel() // scores.shape[0]
    width = math.gcd(heads, cfg.tile)
    call(
        bind(launch_segment_softmax, cfg),
        (scores.dtype, indptr.dtype, width),
        (
            DynamicTensor(scores.view(-1)),
            DynamicTensor(indptr),
            DynamicTensor(y.view(-1)),
            indptr.numel() - 1,
            heads,
        ),
        (width,),
    )
    return y
