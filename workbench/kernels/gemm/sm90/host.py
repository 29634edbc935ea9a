"""Host side of the Hopper GEMM: check torch tensors, allocate the result, launch. a (..., m, k) @ b (..., k, n).

There is at most one batch extent. a may be stored as (k, m), b as (n, k). Raises ValueError for shapes and TypeError
for dtypes.
"""

import cuda.bindings.driver as cuda
import cutlass
import torch

from workbench.kernels.epilogue import broadcast_view
from workbench.kernels.gemm.sm90.kernel import launch_gemm
from workbench.kernels.gemm.sm90.pack import make_operands, max_active_clusters
from workbench.kernels.gemm.sm90.reduction import launch_finish, launch_gemm_reduce
from workbench.kernels.gemm.sm90.split_k import launch_cluster_split, launch_combine
from workbench.kernels.host import EXACT_DTYPES, DynamicTensor, call, check_not_empty, check_operand, check_rank
from workbench.kernels.static import Many, Static, bind, torch_dtype


def check_product(cfg: Static, names: Static, a, b, batch):
    """Check b against a: batch, k and dtype must match. Return (m, n, k)."""
    m, k = (a.shape[-1], a.shape[-2]) if cfg.a_transposed else (a.shape[-2], a.shape[-1])
    n = b.shape[-2] if cfg.b_transposed else b.shape[-1]
    shape = (*batch, n, k) if cfg.b_transposed else (*batch, k, n)
    check_operand(names["b"], b, shape, (torch_dtype(cfg.element),))
    return m, n, k


def check_axes(cfg: Static, names: Static, a, b):
    """Check that the operands are matrices or batches of matrices."""
    check_rank(names["a"], a, 2, 3)
    if cutlass.const_expr(cfg.b_transposed):
        check_rank(names["b"], b, 2, 3)


def check_operands(cfg: Static, names: Static, operands: Many, m, n, shape):
    """Check the shapes of the tensors that the epilogue reads; `shape` is that of the product."""
    for operand, read in zip(operands, cfg.reads, strict=True):
        if cutlass.const_expr(read.along == "both"):
            check_operand(names[read.role], operand, shape, EXACT_DTYPES, broadcast=True)
        elif cutlass.const_expr(read.along == "n"):
            check_operand(names[read.role], operand, (n,), EXACT_DTYPES)
        else:
            check_operand(names[read.role], operand, (m,), EXACT_DTYPES)


def pad_k(cfg: Static, a, b):
    """Return a and b padded from k = 0 to k = 1 with zeros, so that the product is zero."""
    a = torch.nn.functional.pad(a, (0, 0, 0, 1) if cfg.a_transposed else (0, 1))
    b = torch.nn.functional.pad(b, (0, 1) if cfg.b_transposed else (0, 0, 0, 1))
    return a, b


def can_load_pairs(view):
    """Return whether one access can read two neighbouring columns of a (batch, m, n) view."""
    even = view.shape[2] % 2 == 0 and view.stride(0) % 2 == 0 and view.stride(1) % 2 == 0
    return view.element_size() in (2, 4) and even and view.data_ptr() % (2 * view.element_size()) == 0


def matrix_view(cfg: Static, view):
    """Return the CuTe tensor of a (batch, m, n) epilogue operand; its alignment tells the kernel to load pairs."""
    if cutlass.const_expr(cfg.swap):
        return DynamicTensor(view.transpose(1, 2), leading_dim=1)
    alignment = 2 * view.element_size() if can_load_pairs(view) else None
    return DynamicTensor(view, align=alignment, leading_dim=2)


def result_view(cfg: Static, d, by_tma):
    """Return the CuTe tensor of the (batch, m, n) result, transposed if the kernel computes the transpose."""
    alignment = 16 if by_tma else None
    if cutlass.const_expr(cfg.swap):
        return DynamicTensor(d.transpose(1, 2), align=alignment, leading_dim=1)
    return DynamicTensor(d, align=alignment, leading_dim=2)


def can_store_by_tma(cfg: Static, d):
    """Return whether TMA can store the result; otherwise the threads store it."""
    if cutlass.const_expr(cfg.store == "tma"):
        return d.shape[-1] * d.element_size() % 16 == 0
    return False


def gemm(cfg: Static, names: Static, a, b, operands: Many):
    """Return epilogue(a @ b)."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, a.shape[:-2])
    d = torch.empty(*a.shape[:-2], m, n, dtype=torch_dtype(cfg.result), device=a.device)
    check_operands(cfg, names, operands, m, n, d.shape)
    if d.numel() == 0:
        return d
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = pad_k(cfg, a, b)
    (left, left_along_k), (right, right_along_k) = make_operands(cfg, a, b)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    by_tma = can_store_by_tma(cfg, d3)
    dtypes = tuple(operand.dtype for operand in operands)
    views = tuple(
        broadcast_view(operand, d.shape) if read.along == "both" else operand.detach().contiguous()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    pairs = tuple(
        can_load_pairs(view)
        for view, read in zip(views, cfg.reads, strict=True)
        if read.along == "both" and not cfg.swap
    )
    if cutlass.const_expr(cfg.stream_k):
        partials, flags = make_workspace(cfg, a.device)
        max_clusters = ()
    else:
        max_clusters = max_active_clusters(cfg)
    call(
        bind(launch_gemm, cfg),
        (*dtypes, *pairs, by_tma, left_along_k, right_along_k),
        (
            left,
            right,
            tuple(
                matrix_view(cfg, view) if read.along == "both" else DynamicTensor(view)
                for view, read in zip(views, cfg.reads, strict=True)
            ),
            (
                DynamicTensor(partials, align=16),
                DynamicTensor(flags),
            )
            if cfg.stream_k
            else (),
            result_view(cfg, d3, by_tma),
        ),
        (by_tma, max_clusters),
    )
    return d


def count_partials(cfg: Static, m, n):
    """Partial results of a row or a column: one of each tile, or of each warp of its rows."""
    if cutlass.const_expr(cfg.reduces_kernel_rows):
        return -(-(m if cfg.swap else n) // cfg.tile_n)
    return -(-(n if cfg.swap else m) // cfg.tile_m) * (cfg.tile_m // cfg.warpgroup_m) * 4


def gemm_reduce(cfg: Static, names: Static, a, b, operands: Many):
    """Return the reduction of epilogue(a @ b) over rows or columns."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, a.shape[:-2])
    lead = a.shape[:-2]
    d = torch.empty(*lead, m if cfg.reduces_rows else n, dtype=torch_dtype(cfg.result), device=a.device)
    result = d
    if cutlass.const_expr(cfg.keepdim):
        result = d.unsqueeze(-1 if cfg.reduces_rows else -2)
    check_operands(cfg, names, operands, m, n, (*lead, m, n))
    if d.numel() == 0:
        return result
    if cutlass.const_expr(cfg.reduces_rows):
        check_not_empty(names["b"], b, n, cfg.reduction)
    else:
        check_not_empty(names["a"], a, m, cfg.reduction)
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = pad_k(cfg, a, b)
    (left, left_along_k), (right, right_along_k) = make_operands(cfg, a, b)
    # partial results of the tiles
    partial = torch.empty(
        count_partials(cfg, m, n), a.shape[0] if lead else 1, d.shape[-1], dtype=torch.float32, device=a.device
    )
    dtypes = tuple(operand.dtype for operand in operands)
    views = tuple(
        broadcast_view(operand, (*lead, m, n)) if read.along == "both" else operand.detach().contiguous()
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    pairs = tuple(
        can_load_pairs(view)
        for view, read in zip(views, cfg.reads, strict=True)
        if read.along == "both" and not cfg.swap
    )
    if cutlass.const_expr(cfg.stream_k):
        partials, flags = make_workspace(cfg, a.device)
        max_clusters = ()
    else:
        max_clusters = max_active_clusters(cfg)
    call(
        bind(launch_gemm_reduce, cfg),
        (*dtypes, *pairs, left_along_k, right_along_k),
        (
            left,
            right,
            tuple(
                matrix_view(cfg, view) if read.along == "both" else DynamicTensor(view)
                for view, read in zip(views, cfg.reads, strict=True)
            ),
            (
                DynamicTensor(partials, align=16),
                DynamicTensor(flags),
            )
            if cfg.stream_k
            else (),
            DynamicTensor(partial, leading_dim=2),
        ),
        (max_clusters,),
    )
    call(
        bind(launch_finish, cfg),
        (d.dtype,),
        (
            DynamicTensor(partial, leading_dim=2),
            DynamicTensor(d.view(-1, d.shape[-1]), leading_dim=1),
            n if cfg.reduces_rows else m,
        ),
    )
    return result


def gemm_split_k(cfg: Static, names: Static, a, b, operands: Many):
    """Return epilogue(a @ b), computed in SPLIT_K parts of k in parallel."""
    check_axes(cfg, names, a, b)
    m, n, k = check_product(cfg, names, a, b, a.shape[:-2])
    d = torch.empty(*a.shape[:-2], m, n, dtype=torch_dtype(cfg.result), device=a.device)
    check_operands(cfg, names, operands, m, n, d.shape)
    if d.numel() == 0:
        return d
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = pad_k(cfg, a, b)
    (left, left_along_k), (right, right_along_k) = make_operands(cfg, a, b)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    dtypes = tuple(operand.dtype for operand in operands)
    views = tuple(
        DynamicTensor(broadcast_view(operand, d.shape), leading_dim=2)
        if read.along == "both"
        else DynamicTensor(operand.detach().contiguous())
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
    by_tma = can_store_by_tma(cfg, partial)
    call(
        bind(launch_gemm, cfg),
        (by_tma, left_along_k, right_along_k),
        (left, right, (), (), result_view(cfg, partial, by_tma)),
        (by_tma, max_active_clusters(cfg)),
    )
    call(
        bind(launch_combine, cfg),
        (*dtypes, d.dtype),
        (DynamicTensor(partial, leading_dim=2), views, result_view(cfg, d3, False)),
    )
    return d


flag_arrays: dict = {}  # (device, count, stream, capture) -> flags in use; (device, count) -> spare ones


def make_workspace(cfg: Static, device):
    """Return the stream-K workspace: float32 partial sums of all resident CTAs, and a zero flag per warpgroup.

    Every launch leaves its flags zero. Each stream has its own flags, and so has each graph capture, because a graph
    may run concurrently with the stream that it was captured on.
    """
    ctas, stream, capture = max_active_clusters(cfg) * cfg.cluster_m * cfg.cluster_n, torch.cuda.current_stream(), 0
    partials = torch.empty(ctas * cfg.tile_m * cfg.tile_n, dtype=torch.float32, device=device)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        capture = cuda.cuStreamGetCaptureInfo(stream.cuda_stream)[2]
    count = ctas * cfg.mma_warpgroups
    key, spare = (device, count, stream.cuda_stream, capture), flag_arrays.setdefault((device, count), [])
    if key not in flag_arrays:
        if not spare:  # under capture the zeroing becomes a node of the graph
            spare += torch.zeros(1 if capture else cfg.spare_flags, count, dtype=torch.int32, device=device)
            if not capture:
                stream.synchronize()  # other streams may take the spare ones
        flag_arrays[key] = spare.pop()
    return partials, flag_arrays[key]
