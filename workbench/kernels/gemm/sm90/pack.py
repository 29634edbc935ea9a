"""Operands of a Hopper product that TMA or wgmma cannot read where they lie: copies, for tf32x3 in two parts each."""

import functools
import weakref

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.host import call
from workbench.kernels.static import Static, bind, dtype, torch_dtype


@cute.jit
def pack_block(source):
    """(block of rows, batch, block of k) of a CTA's 32 x 32 elements."""
    cta, _, _ = cute.arch.block_idx()
    # along one axis of the grid: the others end at 65535
    blocks, batches = (source.shape[1] + 31) // 32, source.shape[0]
    return cta % blocks, cta // blocks % batches, cta // blocks // batches


@cute.kernel
def pack_kernel(cfg: Static, source: cute.Tensor, target: cute.Tensor, along_k: cutlass.Constexpr):
    """32 x 32 elements (row, k) through shared memory: read along the source's contiguous extent, written along k."""
    x, y, _ = cute.arch.thread_idx()
    block_row, batch, block_k = pack_block(source)
    if cutlass.const_expr(cfg.pdl):
        # what the kernel before this one wrote can be read from here on; the next one may start
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
    """source (batch, rows, k) -> target, the same along k."""
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
    """32 x 32 elements (row, k), each as its upper bits, which TF32 holds, and the rest: three times k in all."""
    x, y, _ = cute.arch.thread_idx()
    block_row, batch, block_k = pack_block(source)
    if cutlass.const_expr(cfg.pdl):
        # what the kernel before this one wrote can be read from here on; the next one may start
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
            bits[0] = bits[0] & -8192  # sign, exponent and ten bits
            rest = value - upper[0]
            if rest != rest:  # of an infinity nothing is left
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


def takes_tma(tensor):
    """Whether TMA reaches a (batch, rows, columns) tensor: one contiguous extent, else multiples of 16 bytes."""
    inner = 2 if tensor.stride(2) == 1 else 1
    steps = [tensor.stride(i) * tensor.element_size() for i in (0, 1, 2) if i != inner and tensor.shape[i] > 1]
    aligned = tensor.stride(inner) == 1 and tensor.data_ptr() % 16 == 0
    return aligned and all(step > 0 and step % 16 == 0 for step in steps)


def source_view(tensor):
    """A (batch, rows, k) tensor with any strides for CuTe."""
    if 1 not in tensor.stride()[1:]:
        return from_dlpack(tensor).mark_layout_dynamic()
    return from_dlpack(tensor).mark_layout_dynamic(leading_dim=2 if tensor.stride(2) == 1 else 1)


def readable(cfg: Static, tensor, either):
    """A (batch, rows, k) operand, or a copy along k in rows of whole 16 bytes, as TMA and wgmma read it.

    `either`: it may also lie along its rows.
    """
    if takes_tma(tensor) and (either or tensor.stride(2) == 1):
        return tensor
    batches, rows, k = tensor.shape
    unit = 128 // dtype(cfg.element).width
    padded = (k + unit - 1) // unit * unit
    copy = torch.empty(batches, rows, padded, dtype=tensor.dtype, device=tensor.device)[:, :, :k]
    along_k = tensor.stride(2) == 1
    call(
        bind(launch_pack, cfg),
        (along_k, tensor.stride(1) == 1),
        (source_view(tensor), from_dlpack(copy, assumed_align=16).mark_layout_dynamic(leading_dim=2)),
        (along_k,),
    )
    return copy


known: dict = {}  # operands that TMA reads where they lie: their CuTe tensors, as long as they live


def operand(cfg: Static, tensor, transposed, either):
    """(CuTe tensor (batch, rows, k), whether k is the contiguous extent) of a matrix.

    `transposed`: it is stored as (k, rows). `either`: the kernel also takes it along its rows.
    """
    key, place = (id(tensor), transposed), (tensor.data_ptr(), tensor.shape, tensor.stride())
    if key in known and known[key][0]() is tensor and known[key][1] == place:
        return known[key][2]
    if tensor.dtype != torch_dtype(cfg.element):
        raise TypeError(f"this kernel multiplies {torch_dtype(cfg.element)}, not {tensor.dtype}")
    view = tensor.detach()
    if cutlass.const_expr(cfg.is_8bit):
        view = view.view(torch.uint8)  # DLPack does not know 8-bit floats
    view = view.transpose(-2, -1) if transposed else view
    view = view if view.dim() == 3 else view.unsqueeze(0)
    ready = readable(cfg, view, either)
    along_k = ready.stride(2) == 1
    made = (from_dlpack(ready, assumed_align=16).mark_layout_dynamic(leading_dim=2 if along_k else 1), along_k)
    if ready is view:
        known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), place, made)
    return made


def operand_parts(cfg: Static, tensor, transposed, left):
    """(CuTe tensor (batch, rows, 3 k), True) of a float32 matrix in two parts of TF32, upper and rest.

    `transposed`: it is stored as (k, rows). Along k lie upper, rest, upper for the left operand and rest, upper, upper
    for the right one, so that one product adds upper * rest, rest * upper and upper * upper. rest * rest is left out:
    it is under 2^-20 of the product. An infinity times a number that ten bits hold gives NaN.
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
            from_dlpack(parts, assumed_align=16).mark_layout_dynamic(leading_dim=2),
            cutlass.Int32(padded),
        ),
        (along_k, left),
    )
    return from_dlpack(parts, assumed_align=16).mark_layout_dynamic(leading_dim=2), True


def operands_of(cfg: Static, a, b):
    """What the kernel calls a and b, each as `operand` gives it; of the transposed product b comes first."""
    if cutlass.const_expr(cfg.kind == "tf32x3"):
        if cutlass.const_expr(cfg.swap):
            return operand_parts(cfg, b, not cfg.b_transposed, True), operand_parts(cfg, a, cfg.a_transposed, False)
        return operand_parts(cfg, a, cfg.a_transposed, True), operand_parts(cfg, b, not cfg.b_transposed, False)
    # wgmma takes an operand along its rows as well if it is of 16 bits, or goes through registers
    if cutlass.const_expr(cfg.swap):
        return (
            operand(cfg, b, not cfg.b_transposed, cfg.a_in_registers or not cfg.along_k),
            operand(cfg, a, cfg.a_transposed, not cfg.along_k),
        )
    return (
        operand(cfg, a, cfg.a_transposed, cfg.a_in_registers or not cfg.along_k),
        operand(cfg, b, not cfg.b_transposed, not cfg.along_k),
    )


@functools.cache
def resident(cfg: Static):
    """How many clusters the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(cfg.cluster_m * cfg.cluster_n)
