"""Copies of attention operands that TMA cannot read in place, with rows at multiples of 16 bytes."""

import cuda.bindings.driver as cuda
import cutlass.cute as cute
import torch

from workbench.kernels.host import DynamicTensor, call


@cute.kernel
def pack_kernel(mX: cute.Tensor, mY: cute.Tensor):
    """Copy one row per warp."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    # one-dimensional grid over rows, heads and batches: its y and z extents are limited to 65535
    blocks, heads = (mX.shape[2] + 7) // 8, mX.shape[1]
    block, head, batch = bidx % blocks, bidx // blocks % heads, bidx // blocks // heads
    row = block * 8 + tidx // 32
    if row < mX.shape[2]:
        for column in range(tidx % 32, mX.shape[3], 32):
            mY[batch, head, row, column] = mX[batch, head, row, column]


@cute.jit
def pack(mX: cute.Tensor, mY: cute.Tensor, stream: cuda.CUstream):
    """Copy mX to mY, both (batch, heads, rows, dim)."""
    num_ctas = ((mX.shape[2] + 7) // 8) * mX.shape[1] * mX.shape[0]
    pack_kernel(mX, mY).launch(grid=[num_ctas, 1, 1], block=[256, 1, 1], stream=stream)


def make_tma_readable(tensor):
    """Return a (batch, heads, rows, dim) operand if TMA can read it, else a copy with 16-byte aligned rows."""
    strides = [tensor.stride(i) * tensor.element_size() for i in range(3) if tensor.shape[i] > 1]
    if tensor.data_ptr() % 16 == 0 and all(stride > 0 and stride % 16 == 0 for stride in strides):
        return tensor
    batch, heads, rows, dim = tensor.shape
    padded = torch.empty(batch, heads, rows, (dim + 7) // 8 * 8, dtype=tensor.dtype, device=tensor.device)
    copy = padded[..., :dim]
    source = DynamicTensor(tensor.detach(), leading_dim=3)
    target = DynamicTensor(copy, leading_dim=3)
    call(pack, tensor.dtype, (source, target))
    return copy
