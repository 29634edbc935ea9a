"""Hopper products of torch tensors: checks, the result, the launches. a (..., m, k), b (..., k, n) -> d (..., m, n).

One or no batch extent. a may be given as (k, m), b as (n, k). Errors are ValueError for shapes, TypeError for dtypes.
"""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.epilogue import spread
from workbench.kernels.gemm.sm90.kernel import launch_gemm
from workbench.kernels.gemm.sm90.pack import operands_of, resident
from workbench.kernels.gemm.sm90.reduction import launch_finish, launch_gemm_reduce
from workbench.kernels.gemm.sm90.split_k import launch_cluster_split, launch_combine
from workbench.kernels.host import EXACT, call, expect, expect_axes, expect_some
from workbench.kernels.static import Many, Static, bind, torch_dtype


def check_product(cfg: Static, names: Static, a, b, batch):
    """Refuse operands whose axes, batch or k do not go together; returns (m, n, k)."""
    m, k = (a.shape[-1], a.shape[-2]) if cfg.a_transposed else (a.shape[-2], a.shape[-1])
    n = b.shape[-2] if cfg.b_transposed else b.shape[-1]
    shape = (*batch, n, k) if cfg.b_transposed else (*batch, k, n)
    expect(names["b"], b, shape, (torch_dtype(cfg.element),))
    return m, n, k


def check_axes(cfg: Static, names: Static, a, b):
    """Refuse operands that are no matrices and no batches of them."""
    expect_axes(names["a"], a, 2, 3)
    if cutlass.const_expr(cfg.b_transposed):
        expect_axes(names["b"], b, 2, 3)


def check_operands(cfg: Static, names: Static, operands: Many, m, n, shape):
    """Refuse tensors of other shapes than the epilogue reads; `shape` is the product's."""
    for operand, read in zip(operands, cfg.reads, strict=True):
        if cutlass.const_expr(read.along == "both"):
            expect(names[read.role], operand, shape, EXACT, spread=True)
        elif cutlass.const_expr(read.along == "n"):
            expect(names[read.role], operand, (n,), EXACT)
        else:
            expect(names[read.role], operand, (m,), EXACT)


def pad_k(cfg: Static, a, b):
    """a and b with one k of zeros, where there is none: as if one product of zeros were added up."""
    a = torch.nn.functional.pad(a, (0, 0, 0, 1) if cfg.a_transposed else (0, 1))
    b = torch.nn.functional.pad(b, (0, 1) if cfg.b_transposed else (0, 0, 0, 1))
    return a, b


def in_pairs(view):
    """Whether two neighbouring columns of a (batch, m, n) view can be read in one access."""
    even = view.shape[2] % 2 == 0 and view.stride(0) % 2 == 0 and view.stride(1) % 2 == 0
    return view.element_size() in (2, 4) and even and view.data_ptr() % (2 * view.element_size()) == 0


def matrix_view(cfg: Static, view):
    """A (batch, m, n) tensor that the epilogue reads, for CuTe; the alignment says whether it is read in pairs."""
    if cutlass.const_expr(cfg.swap):
        return from_dlpack(view.transpose(1, 2)).mark_layout_dynamic(leading_dim=1)
    alignment = 2 * view.element_size() if in_pairs(view) else None
    return from_dlpack(view, assumed_align=alignment).mark_layout_dynamic(leading_dim=2)


def result_view(cfg: Static, d, by_tma):
    """The (batch, m, n) result for CuTe, as the kernel computes it."""
    alignment = 16 if by_tma else None
    if cutlass.const_expr(cfg.swap):
        return from_dlpack(d.transpose(1, 2), assumed_align=alignment).mark_layout_dynamic(leading_dim=1)
    return from_dlpack(d, assumed_align=alignment).mark_layout_dynamic(leading_dim=2)


def takes_tma_store(cfg: Static, d):
    """Whether TMA can store the result: otherwise the threads do."""
    if cutlass.const_expr(cfg.store == "tma"):
        return d.shape[-1] * d.element_size() % 16 == 0
    return False


def gemm(cfg: Static, names: Static, a, b, operands: Many):
    """d = epilogue(a @ b)."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, a.shape[:-2])
    d = torch.empty(*a.shape[:-2], m, n, dtype=torch_dtype(cfg.result), device=a.device)
    check_operands(cfg, names, operands, m, n, d.shape)
    if d.numel() == 0:
        return d
    if k == 0:  # nothing is added up: as if it were one product of zeros
        a, b = pad_k(cfg, a, b)
    (left, left_along_k), (right, right_along_k) = operands_of(cfg, a, b)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    by_tma = takes_tma_store(cfg, d3)
    dtypes = tuple(operand.dtype for operand in operands)
    views = tuple(
        spread(operand, d.shape) if read.along == "both" else operand.detach()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    pairs = tuple(
        in_pairs(view) for view, read in zip(views, cfg.reads, strict=True) if read.along == "both" and not cfg.swap
    )
    if cutlass.const_expr(cfg.stream_k):
        sums, ready = make_workspace(cfg, a.device)
    call(
        bind(launch_gemm, cfg),
        (*dtypes, *pairs, by_tma, left_along_k, right_along_k),
        (
            left,
            right,
            tuple(
                matrix_view(cfg, view) if read.along == "both" else from_dlpack(view).mark_layout_dynamic()
                for view, read in zip(views, cfg.reads, strict=True)
            ),
            (
                from_dlpack(sums, assumed_align=16).mark_layout_dynamic(),
                from_dlpack(ready).mark_layout_dynamic(),
            )
            if cfg.stream_k
            else (),
            result_view(cfg, d3, by_tma),
        ),
        (by_tma, None if cfg.stream_k else resident(cfg)),
    )
    return d


def gemm_reduce(cfg: Static, names: Static, a, b, operands: Many):
    """d = a reduction of the rows or columns of epilogue(a @ b)."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, a.shape[:-2])
    lead = a.shape[:-2]
    d = torch.empty(*lead, m if cfg.reduces_rows else n, dtype=torch_dtype(cfg.result), device=a.device)
    check_operands(cfg, names, operands, m, n, (*lead, m, n))
    if d.numel() == 0:
        return d
    if cutlass.const_expr(cfg.reduces_rows):
        expect_some(names["b"], b, n, cfg.reduction)
    else:
        expect_some(names["a"], a, m, cfg.reduction)
    if k == 0:  # nothing is added up: as if it were one product of zeros
        a, b = pad_k(cfg, a, b)
    (left, left_along_k), (right, right_along_k) = operands_of(cfg, a, b)
    high, wide = (n, m) if cfg.swap else (m, n)  # what the kernel calls m and n
    if cutlass.const_expr(cfg.reduces_kernel_rows):
        parts = -(-wide // cfg.tile_n)
    else:
        parts = -(-high // cfg.tile_m) * (cfg.tile_m // cfg.warpgroup_m) * 4
    # what each tile gives
    partial = torch.empty(parts, a.shape[0] if lead else 1, d.shape[-1], dtype=torch.float32, device=a.device)
    dtypes = tuple(operand.dtype for operand in operands)
    views = tuple(
        spread(operand, (*lead, m, n)) if read.along == "both" else operand.detach()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    pairs = tuple(
        in_pairs(view) for view, read in zip(views, cfg.reads, strict=True) if read.along == "both" and not cfg.swap
    )
    if cutlass.const_expr(cfg.stream_k):
        sums, ready = make_workspace(cfg, a.device)
    call(
        bind(launch_gemm_reduce, cfg),
        (*dtypes, *pairs, left_along_k, right_along_k),
        (
            left,
            right,
            tuple(
                matrix_view(cfg, view) if read.along == "both" else from_dlpack(view).mark_layout_dynamic()
                for view, read in zip(views, cfg.reads, strict=True)
            ),
            (
                from_dlpack(sums, assumed_align=16).mark_layout_dynamic(),
                from_dlpack(ready).mark_layout_dynamic(),
            )
            if cfg.stream_k
            else (),
            from_dlpack(partial).mark_layout_dynamic(leading_dim=2),
        ),
        (None if cfg.stream_k else resident(cfg),),
    )
    call(
        bind(launch_finish, cfg),
        (d.dtype,),
        (
            from_dlpack(partial).mark_layout_dynamic(leading_dim=2),
            from_dlpack(d.view(-1, d.shape[-1])).mark_layout_dynamic(leading_dim=1),
            cutlass.Int32(n if cfg.reduces_rows else m),
        ),
    )
    if cutlass.const_expr(cfg.keepdim):
        d = d.unsqueeze(-1 if cfg.reduces_rows else -2)
    return d


def gemm_split_k(cfg: Static, names: Static, a, b, operands: Many):
    """d = epilogue(a @ b); parts of k are summed up side by side."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, a.shape[:-2])
    d = torch.empty(*a.shape[:-2], m, n, dtype=torch_dtype(cfg.result), device=a.device)
    check_operands(cfg, names, operands, m, n, d.shape)
    if d.numel() == 0:
        return d
    if k == 0:  # nothing is added up: as if it were one product of zeros
        a, b = pad_k(cfg, a, b)
    (left, left_along_k), (right, right_along_k) = operands_of(cfg, a, b)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    dtypes = tuple(operand.dtype for operand in operands)
    views = tuple(
        from_dlpack(spread(operand, d.shape)).mark_layout_dynamic(leading_dim=2)
        if read.along == "both"
        else from_dlpack(operand.detach()).mark_layout_dynamic()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    if cutlass.const_expr(cfg.in_cluster):
        call(
            bind(launch_cluster_split, cfg),
            (*dtypes, left_along_k, right_along_k),
            (left, right, views, result_view(cfg, d3, False)),
        )
        return d
    partial = torch.empty(d3.shape[0] * cfg.split_k, m, n, dtype=torch.float32, device=a.device)
    by_tma = takes_tma_store(cfg, partial)
    call(
        bind(launch_gemm, cfg),
        (by_tma, left_along_k, right_along_k),
        (left, right, (), (), result_view(cfg, partial, by_tma)),
        (by_tma, resident(cfg)),
    )
    call(
        bind(launch_combine, cfg),
        (*dtypes, d.dtype),
        (from_dlpack(partial).mark_layout_dynamic(leading_dim=2), views, result_view(cfg, d3, False)),
    )
    return d


flags: dict = {}  # zeros by their number, stream and capture; without these, those that are not taken yet


def make_workspace(cfg: Static, device):
    """Float32 for the sums that CTAs hand on, and an int32 zero for each warpgroup, which every launch leaves zero.

    A stream has zeros of its own, and so has each capture of a graph, which may run beside its stream.
    """
    ctas, stream, capture = resident(cfg) * cfg.cluster_m * cfg.cluster_n, torch.cuda.current_stream(), 0
    sums = torch.empty(ctas * cfg.tile_m * cfg.tile_n, dtype=torch.float32, device=device)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        capture = cuda.cuStreamGetCaptureInfo(stream.cuda_stream)[2]
    count = ctas * cfg.mma_warpgroups
    key, spare = (device, count, stream.cuda_stream, capture), flags.setdefault((device, count), [])
    if key not in flags:
        if not spare:  # while a graph is captured, its first node is to zero them; otherwise it needs none
            spare += torch.zeros(1 if capture else cfg.spare_flags, count, dtype=torch.int32, device=device)
            if not capture:
                stream.synchronize()  # other streams take some of them
        flags[key] = spare.pop()
    return sums, flags[key]
