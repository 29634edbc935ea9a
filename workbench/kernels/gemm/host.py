"""Host side of matrix products for sm_80 and below: check torch tensors, allocate the result, launch.

a is (m, k) or (batch, m, k), b (k, n) or (batch, k, n), of the same float type; the result is (m, n) or (batch, m, n).
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.epilogue import broadcast_view
from workbench.kernels.gemm.mma_sync import mma_kernel, mma_op
from workbench.kernels.gemm.simt import naive_kernel, tiled_kernel
from workbench.kernels.gemm.sm80 import access_bits, launch_sm80
from workbench.kernels.host import EXACT_DTYPES, FLOAT_DTYPES, DynamicTensor, call, check_operand, check_rank
from workbench.kernels.static import Many, Static, bind, torch_dtype


@cute.jit
def launch_gemm(
    cfg: Static,
    mA: cute.Tensor,
    mB: cute.Tensor,
    operands: Many[cute.Tensor],
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    batches: cutlass.Int32,
    stream: cuda.CUstream,
):
    ctas = ((n + cfg.tile_n - 1) // cfg.tile_n) * ((m + cfg.tile_m - 1) // cfg.tile_m) * batches
    if cutlass.const_expr(cfg.kind == "naive"):
        naive_kernel(cfg, mA, mB, operands, mD, m, n, k).launch(
            grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
        )
    elif cutlass.const_expr(cfg.kind == "tiled"):
        tiled_kernel(cfg, mA, mB, operands, mD, m, n, k).launch(
            grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
        )
    else:
        tiled_mma = cute.make_tiled_mma(mma_op(cfg), cute.make_layout((2, 2, 1)))
        mma_kernel(cfg, mA, mB, operands, mD, m, n, k, tiled_mma).launch(
            grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
        )


def view_batches(tensor):
    """Return a (batch, rows, columns) view of a matrix or of several; a copy if neither extent of them has stride 1."""
    tensor = tensor if 1 in tensor.stride()[-2:] else tensor.contiguous()
    return tensor if tensor.dim() == 3 else tensor.unsqueeze(0)


def gemm(cfg: Static, names: Static, a, b, operands: Many):
    """Return epilogue(a @ b).

    Tensor cores with stages take tensors of the configured element type only. Raises ValueError for shapes and
    TypeError for dtypes.
    """
    check_rank(names["a"], a, 2, 3)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    check_operand(names["a"], a, a.shape, (torch_dtype(cfg.element),) if cfg.kind == "sm80" else FLOAT_DTYPES)
    check_operand(names["b"], b, (*a.shape[:-2], k, n), (a.dtype,))
    d = torch.empty(*a.shape[:-1], n, dtype=torch_dtype(cfg.result) if cfg.result else a.dtype, device=a.device)
    for read, tensor in zip(cfg.reads, operands, strict=True):
        if cutlass.const_expr(read.along == "both"):
            check_operand(names[read.role], tensor, d.shape, EXACT_DTYPES, broadcast=True)
        else:
            check_operand(names[read.role], tensor, (n,) if read.along == "n" else (m,), EXACT_DTYPES)
    if d.numel() == 0:
        return d
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = torch.nn.functional.pad(a, (0, 1)), torch.nn.functional.pad(b, (0, 0, 0, 1))
        k = 1
    a, b = view_batches(a), view_batches(b)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    dtypes = tuple(tensor.dtype for tensor in operands)
    operands = tuple(
        DynamicTensor(broadcast_view(tensor, d.shape), leading_dim=2)
        if read.along == "both"
        else DynamicTensor(tensor.detach().contiguous())
        for tensor, read in zip(operands, cfg.reads, strict=True)
    )
    if cutlass.const_expr(cfg.kind == "sm80"):
        # compile-time parameters: access widths in bits, and whether a and b are contiguous along k
        width_a, width_b, a_along_k, b_along_k = access_bits(a), access_bits(b), a.stride(2) == 1, b.stride(1) == 1
        call(
            bind(launch_sm80, cfg),
            (a.dtype, *dtypes, width_a, width_b, a_along_k, b_along_k),
            (
                DynamicTensor(a.detach(), align=width_a // 8, leading_dim=2 if a_along_k else 1),
                DynamicTensor(b.detach(), align=width_b // 8, leading_dim=1 if b_along_k else 2),
                operands,
                DynamicTensor(d3, leading_dim=2),
                m,
                n,
                k,
                d3.shape[0],
            ),
            (width_a, width_b, a_along_k, b_along_k),
        )
    else:
        call(
            bind(launch_gemm, cfg),
            (a.dtype, *dtypes, a.stride(2) == 1, b.stride(2) == 1),
            (
                DynamicTensor(a.detach(), leading_dim=2 if a.stride(2) == 1 else 1),
                DynamicTensor(b.detach(), leading_dim=2 if b.stride(2) == 1 else 1),
                operands,
                DynamicTensor(d3, leading_dim=2),
                m,
                n,
                k,
                d3.shape[0],
            ),
        )
    return d
