"""gather, scatter_add and scatter_max of torch tensors: check, allocate results, launch."""

import math

import cutlass
import torch

from workbench.kernels.gather.kernel import (
    launch_choose,
    launch_copy,
    launch_elements,
    launch_layers,
    launch_mark,
    launch_scatter,
)
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


def flat_view(tensor):
    """Return the 1-d CuTe tensor of a contiguous tensor."""
    return DynamicTensor(tensor.view(-1))


def check_other_extents(cfg: Static, name, part, whole_name, whole):
    """Check that two tensors have equal extents on all axes but the indexed one."""
    is_same = part.shape[: cfg.axis] == whole.shape[: cfg.axis]
    if not is_same or part.shape[cfg.next_axis :] != whole.shape[cfg.next_axis :]:
        shapes = f"{name} {tuple(part.shape)} and {whole_name} {tuple(whole.shape)}"
        raise ValueError(f"{shapes}: this kernel wants the same extents on all axes but {cfg.axis}")


def gather(cfg: Static, names: Static, x, index):
    """Return elements (torch.gather) or slices (index_select, index of any shape); the index is int32 or int64."""
    x, index = x.detach().contiguous(), index.contiguous()
    check_rank(names["x"], x, cfg.next_axis)
    check_operand(names["index"], index, index.shape, INDEX_DTYPES)
    extent, inner = x.shape[cfg.axis], math.prod(x.shape[cfg.next_axis :])
    if cutlass.const_expr(cfg.layers):
        y = torch.empty(*x.shape[: cfg.axis], *index.shape, *x.shape[cfg.next_axis :], dtype=x.dtype, device=x.device)
    else:
        check_other_extents(cfg, "index", index, "x", x)
        y = torch.empty(index.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    check_element_count(names["x"], x)
    check_element_count("the result", y)
    count_type = cutlass.Int32 if y.numel() < 1 << 30 else cutlass.Int64
    if cutlass.const_expr(cfg.layers):
        width = math.gcd(inner, 16 // x.element_size(), x.data_ptr() // x.element_size())
        call(
            bind(launch_layers, cfg),
            (x.dtype, index.dtype, width, count_type),
            (
                DynamicTensor(x.view(-1), align=width * x.element_size()),
                flat_view(index),
                DynamicTensor(y.view(-1), align=width * y.element_size()),
                extent,
                index.numel(),
                inner // width,
            ),
            (width, count_type),
        )
    else:
        call(
            bind(launch_elements, cfg),
            (x.dtype, index.dtype, count_type),
            (
                flat_view(x),
                flat_view(index),
                flat_view(y),
                extent,
                index.shape[cfg.axis],
                inner,
            ),
            (count_type,),
        )
    return y


def check_scatter(cfg: Static, names: Static, out, index, src):
    """Check the operands of a scatter; their values are not read, which would synchronise."""
    check_rank(names["out"], out, cfg.next_axis)
    check_operand(names["out"], out, out.shape, FLOAT_DTYPES)
    check_operand(names["src"], src, src.shape, FLOAT_DTYPES)
    check_operand(names["index"], index, index.shape, INDEX_DTYPES)
    check_other_extents(cfg, "src", src, "out", out)
    if cutlass.const_expr(cfg.layers):
        check_operand(names["index"], index.view(-1), (src.shape[cfg.axis],), INDEX_DTYPES)
    elif index.shape != src.shape:
        raise ValueError(f"index {tuple(index.shape)} and src {tuple(src.shape)}: this kernel wants one shape")
    check_element_count(names["out"], out)
    check_element_count(names["src"], src)


def scatter_into(cfg: Static, y, index, src):
    """Combine the elements of src with those of y that index names; y has the shape of the result."""
    count_type = cutlass.Int32 if src.numel() < 1 << 30 else cutlass.Int64
    call(
        bind(launch_scatter, cfg),
        (index.dtype, src.dtype, count_type),
        (
            flat_view(y),
            flat_view(index),
            flat_view(src),
            y.shape[cfg.axis],
            src.shape[cfg.axis],
            math.prod(y.shape[cfg.next_axis :]),
        ),
        (count_type,),
    )


def scatter_add(cfg: Static, names: Static, out, index, src):
    """Return out with elements (torch.scatter_add) or slices (index_add) of src added at index; sums are float32."""
    out, index, src = out.detach().contiguous(), index.contiguous(), src.detach().contiguous()
    check_scatter(cfg, names, out, index, src)
    if out.numel() == 0:
        return out
    y = torch.empty(out.shape, dtype=torch.float32, device=out.device)
    call(bind(launch_copy, cfg), (out.dtype, y.dtype), (flat_view(out), flat_view(y)))
    if src.numel():
        scatter_into(cfg, y, index, src)
    if out.dtype == y.dtype:
        return y
    result = torch.empty_like(out)
    call(bind(launch_copy, cfg), (y.dtype, out.dtype), (flat_view(y), flat_view(result)))
    return result


def scatter_max(cfg: Static, names: Static, out, index, src):
    """Return out with the largest of the elements, or slices, of src that go to a place (include_self=False)."""
    out, index, src = out.detach().contiguous(), index.contiguous(), src.detach().contiguous()
    check_scatter(cfg, names, out, index, src)
    if out.numel() == 0:
        return out
    bits = torch.empty(out.shape, dtype=torch.int32, device=out.device)
    call(bind(launch_mark, cfg), (), (flat_view(bits),))
    if src.numel():
        scatter_into(cfg, bits, index, src)
    result = torch.empty_like(out)
    call(bind(launch_choose, cfg), (out.dtype,), (flat_view(bits), flat_view(out), flat_view(result)))
    return result
