"""aggregate of torch tensors: check, allocate the result, launch."""

import math

import torch

from workbench.kernels.aggregate.launch import launch_aggregate
from workbench.kernels.host import (
    FLOAT_DTYPES,
    INDEX_DTYPES,
    MAX_ELEMENTS,
    DynamicTensor,
    VectorTensor,
    call,
    check_element_count,
    check_operand,
    check_rank,
)
from workbench.kernels.static import Many, Static, bind


def as_vectors(tensor, width):
    """Return a contiguous tensor as (vectors, width)."""
    return VectorTensor(tensor.view(-1, width), align=width * tensor.element_size())


def check_graph(names: Static, indptr, indices):
    """Check the dtypes and the axes of offsets and indices. Their values are not read, which would synchronise."""
    check_rank(names["indptr"], indptr, 1, 1)
    check_rank(names["indices"], indices, 1, 1)
    check_operand(names["indptr"], indptr, indptr.shape, INDEX_DTYPES)
    check_operand(names["indices"], indices, indices.shape, INDEX_DTYPES)
    check_element_count(names["indices"], indices)
    if indptr.numel() == 0:
        raise ValueError(f"{names['indptr']} is empty; this kernel wants an offset more than rows, the first 0")


def count_heads(names: Static, weight, x, indices):
    """Return the weights of a neighbour, each of which is for an equal part of the columns of x."""
    check_rank(names["weight"], weight, 1, 2)
    if weight.dim() == 1:
        check_operand(names["weight"], weight, indices.shape)
        return 1
    check_rank(names["x"], x, 2)
    check_operand(names["weight"], weight, (indices.shape[0], x.shape[1]))
    return x.shape[1]


def make_parts(cfg: Static, y, indices, columns):
    """Return room for the parts of rows that CTAs of the merge path share; sizes depend on shapes only."""
    rows, edges = y.shape[0], indices.numel()
    if rows + edges > MAX_ELEMENTS:
        raise ValueError(f"{rows} rows and {edges} indices; this kernel supports at most {MAX_ELEMENTS} together")
    ctas = -(-(rows + edges) // cfg.span)
    return torch.empty(ctas * 2 * columns, dtype=torch.float32, device=y.device)


def aggregate(cfg: Static, names: Static, x, indptr, indices, weights: Many):
    """Return sum, mean or max of the rows x[indices[indptr[r] : indptr[r + 1]]] for each r, in the dtype of x.

    x (rows, ...) is a float; offsets and indices are int32 or int64. A weight is (neighbours), or (neighbours, heads)
    with x (rows, heads, ...). Sums are float32.
    """
    x, indptr, indices = x.detach().contiguous(), indptr.contiguous(), indices.contiguous()
    check_rank(names["x"], x, 1)
    check_operand(names["x"], x, x.shape, FLOAT_DTYPES)
    check_graph(names, indptr, indices)
    heads = tuple(count_heads(names, weight, x, indices) for weight in weights)
    rows, columns = indptr.numel() - 1, math.prod(x.shape[1:])
    y = torch.empty(rows, *x.shape[1:], dtype=x.dtype, device=x.device)
    if indices.numel() == 0:
        return y.fill_(cfg.empty_value)
    if x.shape[0] == 0:
        raise ValueError(f"{names['x']} has no rows, and {names['indices']} has {indices.numel()}")
    if y.numel() == 0:
        return y
    width = math.gcd(
        columns,
        *(columns // count for count in heads),
        cfg.vector,
        16 // x.element_size(),
        x.data_ptr() // x.element_size(),
    )
    factors = tuple(weight.detach().contiguous() for weight in weights)
    if cfg.items:
        parts = make_parts(cfg, y, indices, columns)
    call(
        bind(launch_aggregate, cfg),
        (x.dtype, indptr.dtype, indices.dtype, *(weight.dtype for weight in factors), width),
        (
            as_vectors(x, width),
            DynamicTensor(indptr),
            DynamicTensor(indices),
            tuple(DynamicTensor(weight.view(-1)) for weight in factors),
            as_vectors(y, width),
            (as_vectors(parts, width),) if cfg.items else (),
            rows,
            x.shape[0],
            columns // width,
            heads,
        ),
        (width,),
    )
    return y
