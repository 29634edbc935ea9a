"""Text of a Hopper product beside the product itself: operands that TMA or wgmma cannot read where they lie are copied, for tf32x3 in two parts. `hopper` fills it in."""

from __future__ import annotations

OPERANDS = '''@cute.kernel
def pack_kernel(source: cute.Tensor, target: cute.Tensor, along_k: cutlass.Constexpr):
    """32 x 32 elements (row, k) through shared memory: read along the source's contiguous extent, written along k."""
    x, y, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks, batches = (source.shape[1] + 31) // 32, source.shape[0]
    block_row, batch, block_k = cta % blocks, cta // blocks % batches, cta // blocks // batches  # along one axis of the grid: the others end at 65535
{early}    memory = cutlass.memory.SmemAllocator()
    tile = memory.allocate_tensor(STORED, cute.make_layout((32, 32), stride=(33, 1)), 16)
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
def pack(source: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream, along_k: cutlass.Constexpr):
    batches, rows, k = source.shape
    pack_kernel(source, target, along_k).launch(grid=[batches * ((rows + 31) // 32) * ((k + 31) // 32), 1, 1], block=[32, 8, 1], stream=stream{pdl})


def takes_tma(tensor):
    """Whether TMA can reach a (batch, rows, columns) tensor: one contiguous extent, and everything else at multiples of 16 bytes."""
    inner = 2 if tensor.stride(2) == 1 else 1
    steps = [tensor.stride(i) * tensor.element_size() for i in (0, 1, 2) if i != inner and tensor.shape[i] > 1]
    return tensor.stride(inner) == 1 and tensor.data_ptr() % 16 == 0 and all(step > 0 and step % 16 == 0 for step in steps)


def readable(tensor{either}):
    """A (batch, rows, k) operand as it is, or a copy that {reads} can read: STORED, along k, rows padded to 16 bytes."""
    if takes_tma(tensor){along_k}:
        return tensor
    batches, rows, k = tensor.shape
    unit = 128 // ELEMENT.width
    copy = torch.empty(batches, rows, (k + unit - 1) // unit * unit, dtype=tensor.dtype, device=tensor.device)[:, :, :k]
    along_k = tensor.stride(2) == 1
    call(pack, (along_k, tensor.stride(1) == 1), (
        from_dlpack(tensor).mark_layout_dynamic(**({{"leading_dim": 2 if along_k else 1}} if 1 in tensor.stride()[1:] else {{}})),
        from_dlpack(copy, assumed_align=16).mark_layout_dynamic(leading_dim=2),
    ), (along_k,))
    return copy


known = {{}}  # operands that TMA reads where they lie: their CuTe tensors, as long as they live


def operand(tensor, turned{either}):
    """(CuTe tensor (batch, rows, k), whether k is the contiguous extent) of a matrix; `turned` when it is stored as (k, rows)."""
    key, place = (id(tensor), turned), (tensor.data_ptr(), tensor.shape, tensor.stride())
    if key in known and known[key][0]() is tensor and known[key][1] == place:
        return known[key][2]
    if tensor.dtype != DTYPE:
        raise TypeError(f"this kernel multiplies {{DTYPE}}, not {{tensor.dtype}}")
    view = tensor.detach(){bits}.transpose(-2, -1) if turned else tensor.detach(){bits}
    view = view if view.dim() == 3 else view.unsqueeze(0)
    ready = readable(view{pass_either})
    k_first = ready.stride(2) == 1
    made = (from_dlpack(ready, assumed_align=16).mark_layout_dynamic(leading_dim=2 if k_first else 1), k_first)
    if ready is view:
        known[key] = (weakref.ref(tensor, lambda _: known.pop(key, None)), place, made)
    return made

'''
OPERANDS_IN_PARTS = '''@cute.kernel
def pack_kernel(source: cute.Tensor, target: cute.Tensor, k: cutlass.Int32, along_k: cutlass.Constexpr, left: cutlass.Constexpr):
    """32 x 32 elements (row, k) through shared memory, each written as its upper bits, which TF32 holds, and what they leave: three times k, small products first."""
    x, y, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks, batches = (source.shape[1] + 31) // 32, source.shape[0]
    block_row, batch, block_k = cta % blocks, cta // blocks % batches, cta // blocks // batches  # along one axis of the grid: the others end at 65535
{early}    memory = cutlass.memory.SmemAllocator()
    tile = memory.allocate_tensor(STORED, cute.make_layout((32, 32), stride=(33, 1)), 16)
    for step in cutlass.range_constexpr(4):
        i, j = (y + 8 * step, x) if cutlass.const_expr(along_k) else (x, y + 8 * step)
        value = STORED(0.0)
        if block_row * 32 + i < source.shape[1] and block_k * 32 + j < source.shape[2]:
            value = source[batch, block_row * 32 + i, block_k * 32 + j]
        tile[i, j] = value
    cute.arch.sync_threads()
    upper = cute.make_rmem_tensor(1, STORED)
    bits = cute.recast_tensor(upper, cutlass.Int32)
    for step in cutlass.range_constexpr(4):
        i, at = y + 8 * step, block_k * 32 + x
        if block_row * 32 + i < source.shape[1] and at < k:
            value = tile[i, x]
            upper[0] = value
            bits[0] = bits[0] & -8192  # sign, exponent and ten bits
            rest = value - upper[0]
            if rest != rest:  # of an infinity nothing is left
                rest = STORED(0.0)
            row = target[batch, block_row * 32 + i, None]
            row[at] = upper[0] if cutlass.const_expr(left) else rest
            row[k + at] = rest if cutlass.const_expr(left) else upper[0]
            row[2 * k + at] = upper[0]


@cute.jit
def pack(source: cute.Tensor, target: cute.Tensor, k: cutlass.Int32, stream: cuda.CUstream, along_k: cutlass.Constexpr, left: cutlass.Constexpr):
    batches, rows, _ = source.shape
    pack_kernel(source, target, k, along_k, left).launch(grid=[batches * ((rows + 31) // 32) * ((k + 31) // 32), 1, 1], block=[32, 8, 1], stream=stream{pdl})


def operand(tensor, turned, left):
    """(CuTe tensor (batch, rows, 3 k), True) of a matrix, `turned` when it is stored as (k, rows): float32 in two parts of TF32, upper and rest.

    Along k lie upper, rest, upper for the left operand and rest, upper, upper for the right one, so that one product adds upper * rest, rest * upper and
    upper * upper. What is left out, rest * rest, is under 2^-20 of the product. An infinity times a number that ten bits hold gives NaN.
    """
    if tensor.dtype != DTYPE:
        raise TypeError(f"this kernel multiplies {{DTYPE}}, not {{tensor.dtype}}")
    view = tensor.detach().transpose(-2, -1) if turned else tensor.detach()
    view = view if view.dim() == 3 else view.unsqueeze(0)
    batches, rows, k = view.shape
    padded = (k + 3) // 4 * 4
    parts = torch.empty(batches, rows, 3 * padded, dtype=DTYPE, device=tensor.device)
    along_k = view.stride(2) == 1
    call(pack, (along_k, view.stride(1) == 1, left), (
        from_dlpack(view).mark_layout_dynamic(**({{"leading_dim": 2 if along_k else 1}} if 1 in view.stride()[1:] else {{}})),
        from_dlpack(parts, assumed_align=16).mark_layout_dynamic(leading_dim=2),
        cutlass.Int32(padded),
    ), (along_k, left))
    return from_dlpack(parts, assumed_align=16).mark_layout_dynamic(leading_dim=2), True

'''
