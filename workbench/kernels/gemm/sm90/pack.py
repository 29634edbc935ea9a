"""Copies of operands whose layout TMA or wgmma cannot read, and the two TF32 parts of float32 operands (tf32x3)."""

import functools
import weakref

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import torch

from workbench.kernels.host import DynamicTensor, call
from workbench.kernels.static import Static, bind, dtype, torch_dtype


@cute.jit
def pack_block(source):
    """Return (block of rows, batch, block of k) of this CTA's 32 x 32 elements."""
    cta, _, _ = cute.arch.block_idx()
    # one-dimensional grid: its y and z extents are limited to 65535
    blocks, batches = (source.shape[1] + 31) // 32, source.shape[0]
    return cta % blocks, cta // blocks % batches, cta // blocks // batches


@cute.kernel
def pack_kernel(cfg: Static, source: cute.Tensor, target: cute.Tensor, along_k: cutlass.Constexpr):
    """Copy 32 x 32 elements (row, k) through shared memory: read along the contiguous extent, write along k."""
    x, y, _ = cute.arch.thread_idx()
    block_row, batch, block_k = pack_block(source)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    smem = cutlass.memory.SmemAllocator()
    tile = smem.allocate_tensor(dtype(cfg.stored), cute.make_layout((32, 32), stride=(33, 1)), 16)
    for step in cutlass.range_constexpr(4):
        i, j = (y + 8 * step, x) if cutlass.const_expr(along_k) else (x, y + 8 * step)
        if block_row * 32 + i < source.shape[1] and block_k * 32 + j < source.shape[2]:
            tile[i, j] = source[batch, block_row * 32 + i, block_k * 32 + j]
    cute.arch.sync_threads()
    for step in cutlass.range_constexpr(4):
        i = y + 8 * step
        if block_row * 32 + i < source.shape[1] and block_k * 32 + x < source.shape[2]:
            target[batch, block_row * 32 + i, block_k * 32 + x] = tile[i, x]


@cute.jit
def launch_pack(
    cfg: Static, source: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream, along_k: cutlass.Constexpr
):
    """source (batch, rows, k) -> target of the same shape, K-major."""
    batches, rows, k = source.shape
    pack_kernel(cfg, source, target, along_k).launch(
        grid=[batches * ((rows + 31) // 32) * ((k + 31) // 32), 1, 1],
        block=[32, 8, 1],
        stream=stream,
        use_pdl=cfg.pdl,
    )


@cute.kernel
def pack_parts_kernel(
    cfg: Static,
    source: cute.Tensor,
    target: cute.Tensor,
    k: cutlass.Int32,
    along_k: cutlass.Constexpr,
    left: cutlass.Constexpr,
):
    """Split 32 x 32 float32 elements (row, k) into their upper bits, which TF32 represents, and the remainder.

    The target holds three blocks of k columns; see `split_operand` for their order.
    """
    x, y, _ = cute.arch.thread_idx()
    block_row, batch, block_k = pack_block(source)
    if cutlass.const_expr(cfg.pdl):
        # programmatic dependent launch: wait for the previous kernel's writes, then let the next kernel start
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
    smem = cutlass.memory.SmemAllocator()
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout((32, 32), stride=(33, 1)), 16)
    for step in cutlass.range_constexpr(4):
        i, j = (y + 8 * step, x) if cutlass.const_expr(along_k) else (x, y + 8 * step)
        value = cutlass.Float32(0.0)
        if block_row * 32 + i < source.shape[1] and block_k * 32 + j < source.shape[2]:
            value = source[batch, block_row * 32 + i, block_k * 32 + j]
        tile[i, j] = value
    cute.arch.sync_threads()
    upper = cute.make_rmem_tensor(1, cutlass.Float32)
    bits = cute.recast_tensor(upper, cutlass.Int32)
    for step in cutlass.range_constexpr(4):
        i, at = y + 8 * step, block_k * 32 + x
        if block_row * 32 + i < source.shape[1] and at < k:
            value = tile[i, x]
            upper[0] = value
            bits[0] = bits[0] & -8192  # keep sign, exponent and ten mantissa bits
            rest = value - upper[0]
            if rest != rest:  # noqa: PLR0124 (infinity minus infinity is not a number)
                rest = cutlass.Float32(0.0)
            row = target[batch, block_row * 32 + i, None]
            row[at] = upper[0] if cutlass.const_expr(left) else rest
            row[k + at] = rest if cutlass.const_expr(left) else upper[0]
            row[2 * k + at] = upper[0]


@cute.jit
def launch_pack_parts(
    cfg: Static,
    source: cute.Tensor,
    target: cute.Tensor,
    k: cutlass.Int32,
    stream: cuda.CUstream,
    along_k: cutlass.Constexpr,
    left: cutlass.Constexpr,
):
    """source (batch, rows, at most k) -> target (batch, rows, 3 k)."""
    batches, rows, _ = source.shape
    pack_parts_kernel(cfg, source, target, k, along_k, left).launch(
        grid=[batches * ((rows + 31) // 32) * ((k + 31) // 32), 1, 1],
        block=[32, 8, 1],
        stream=stream,
        use_pdl=cfg.pdl,
    )


def is_tma_readable(tensor):
    """Return whether TMA can read a (batch, rows, columns) tensor where it lies.

    One of the last two extents must be contiguous, and all other strides and the address multiples of 16 bytes.
    """
    inner = 2 if tensor.stride(2) == 1 else 1
    steps = [tensor.stride(i) * tensor.element_size() for i in (0, 1, 2) if i != inner and tensor.shape[i] > 1]
    aligned = tensor.stride(inner) == 1 and tensor.data_ptr() % 16 == 0
    return aligned and all(step > 0 and step % 16 == 0 for step in steps)


def source_view(tensor):
    """Return a CuTe tensor of a (batch, rows, k) tensor with any strides."""
    if 1 not in tensor.stride()[1:]:
        return DynamicTensor(tensor)
    return DynamicTensor(tensor, leading_dim=2 if tensor.stride(2) == 1 else 1)


def make_tma_readable(cfg: Static, tensor, any_major):
    """Return the (batch, rows, k) operand if TMA and wgmma can read it, else a K-major copy with 16-byte rows.

    `any_major`: the operand may also be contiguous along its rows.
    """
    if is_tma_readable(tensor) and (any_major or tensor.stride(2) == 1):
        return tensor
    batches, rows, k = tensor.shape
    unit = 128 // dtype(cfg.element).width
    padded = (k + unit - 1) // unit * unit
    copy = torch.empty(batches, rows, padded, dtype=tensor.dtype, device=tensor.device)[:, :, :k]
    along_k = tensor.stride(2) == 1
    call(
        bind(launch_pack, cfg),
        (along_k, tensor.stride(1) == 1),
        (source_view(tensor), DynamicTensor(copy, align=16, leading_dim=2)),
        (along_k,),
    )
    return copy


operand_tensors: dict = {}  # CuTe tensors of operands that are read in place, for as long as the torch tensors live


def make_operand(cfg: Static, tensor, transposed, any_major):
    """Return (CuTe tensor (batch, rows, k), whether k is the contiguous extent) of a matrix.

    `transposed`: the matrix is stored as (k, rows). `any_major`: the kernel also reads it contiguous along its rows.
    Raises TypeError for another dtype than the configured one.
    """
    key, place = (id(tensor), transposed), (tensor.data_ptr(), tensor.shape, tensor.stride())
    if key in operand_tensors and operand_tensors[key][0]() is tensor and operand_tensors[key][1] == place:
        return operand_tensors[key][2]
    if tensor.dtype != torch_dtype(cfg.element):
        raise TypeError(f"this kernel multiplies {torch_dtype(cfg.element)}, not {tensor.dtype}")
    view = tensor.detach()
    if cutlass.const_expr(cfg.is_8bit):
        view = view.view(torch.uint8)  # DLPack has no 8-bit floats
    view = view.transpose(-2, -1) if transposed else view
    view = view if view.dim() == 3 else view.unsqueeze(0)
    packed = make_tma_readable(cfg, view, any_major)
    along_k = packed.stride(2) == 1
    made = (DynamicTensor(packed, align=16, leading_dim=2 if along_k else 1), along_k)
    if packed is view:
        operand_tensors[key] = (weakref.ref(tensor, lambda _: operand_tensors.pop(key, None)), place, made)
    return made


def split_operand(cfg: Static, tensor, transposed, left):
    """Return (CuTe tensor (batch, rows, 3 k), True) of a float32 matrix, split into two TF32 parts.

    `transposed`: the matrix is stored as (k, rows). The three blocks along k are upper, rest, upper for the left
    operand and rest, upper, upper for the right one, so that one product adds upper * rest, rest * upper and upper *
    upper. The term rest * rest is dropped: it is below 2^-20 of the product. Infinity times a number that ten bits
    represent gives NaN. Raises TypeError for another dtype than float32.
    """
    if tensor.dtype != torch.float32:
        raise TypeError(f"this kernel multiplies torch.float32, not {tensor.dtype}")
    view = tensor.detach().transpose(-2, -1) if transposed else tensor.detach()
    view = view if view.dim() == 3 else view.unsqueeze(0)
    batches, rows, k = view.shape
    padded = (k + 3) // 4 * 4
    parts = torch.empty(batches, rows, 3 * padded, dtype=torch.float32, device=tensor.device)
    along_k = view.stride(2) == 1
    call(
        bind(launch_pack_parts, cfg),
        (along_k, view.stride(1) == 1, left),
        (
            source_view(view),
            DynamicTensor(parts, align=16, leading_dim=2),
            padded,
        ),
        (along_k, left),
    )
    return DynamicTensor(parts, align=16, leading_dim=2), True


def make_operands(cfg: Static, a, b):
    """Return the CuTe tensors of the kernel's left and right operand; b is the left one of a transposed product."""
    if cutlass.const_expr(cfg.kind == "tf32x3"):
        if cutlass.const_expr(cfg.swap):
            return split_operand(cfg, b, not cfg.b_transposed, True), split_operand(cfg, a, cfg.a_transposed, False)
        return split_operand(cfg, a, cfg.a_transposed, True), split_operand(cfg, b, not cfg.b_transposed, False)
    # wgmma also reads operands that are not K-major if they have 16 bits or come from registers
    if cutlass.const_expr(cfg.swap):
        return (
            make_operand(cfg, b, not cfg.b_transposed, cfg.a_in_registers or not cfg.along_k),
            make_operand(cfg, a, cfg.a_transposed, not cfg.along_k),
        )
    return (
        make_operand(cfg, a, cfg.a_transposed, cfg.a_in_registers or not cfg.along_k),
        make_operand(cfg, b, not cfg.b_transposed, not cfg.along_k),
    )


@functools.cache
def max_active_clusters(cfg: Static):
    """Return how many clusters of this shape the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(cfg.cluster_m * cfg.cluster_n)
