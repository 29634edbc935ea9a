"""gemm(a, b) .arch(sm_80) .layout(b=column) .tile(64, 64, 32) .mma(f16) .stages(3) >> bias() >> gelu_tanh()"""

import math

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from torch import nn

features_in = 4096
features_out = 4096


TILE_M = 64  # rows of an output tile
TILE_K = 32  # k extent of one stage
STAGES = 3  # k tiles in shared memory: one is multiplied while cp.async fills the others
TILE_N = 64  # columns of an output tile
THREADS = 128  # threads of a CTA: four warps, two along m and two along n
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of operands; the kernels compute in float32
EXACT_DTYPES = (*FLOAT_DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16)  # float32 represents these exactly
compiled: dict = {}


def check_rank(name, tensor, least, most=None):
    """Check that an operand has `least` to `most` axes; `most` None means no limit."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def is_broadcastable(own, shape):
    """Return whether a tensor of shape `own` broadcasts to `shape`."""
    pairs = zip(reversed(own), reversed(shape), strict=False)
    return len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def check_operand(name, tensor, shape, dtypes=FLOAT_DTYPES, broadcast=False):
    """Check the shape and dtype of an operand.

    `dtypes`: accepted dtypes. `broadcast`: the operand may also have a shape that broadcasts to `shape`.
    """
    own = tensor.shape
    if own != shape and not (broadcast and is_broadcastable(own, shape)):
        wanted = f"{tuple(shape)}{', or a shape that broadcasts to it' if broadcast else ''}"
        raise ValueError(f"{name} has the shape {tuple(own)}; this kernel wants {wanted}")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} is {tensor.dtype}; this kernel takes {', '.join(map(str, dtypes))}")


def access_bits(tensor):
    """Return the widest access, in bits, that the address and length of every row allow."""
    size = tensor.element_size()
    extents = list(zip(tensor.stride(), tensor.shape, strict=True))
    steps = [stride * size for stride, extent in extents if stride != 1 and extent > 1]
    lengths = [extent * size for stride, extent in extents if stride == 1]
    return 8 * math.gcd(16, tensor.data_ptr(), *steps, *lengths)


def mma_op():
    """Return the mma.sync operation; it accumulates in float32."""
    return cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))


def smem_layout(rows, along_k):
    """Return the layout (rows, tile_k, stages) of an operand in shared memory.

    It is swizzled so that the 16-byte chunks of neighbouring rows fall into different banks.
    """
    width = cutlass.Float16.width
    length = min(TILE_K if along_k else rows, 1024 // width)
    bits = min(3, int(math.log2(length * width // 128)))
    base = int(math.log2(128 // width))
    if along_k:
        plain, order = cute.make_layout((8, length), stride=(length, 1)), (0, 1, 2)
    else:
        plain, order = cute.make_layout((length, 8), stride=(1, length)), (1, 0, 2)
    atom = cute.make_composed_layout(cute.make_swizzle(bits, base, 3), 0, plain)
    return cute.tile_to_shape(atom, (rows, TILE_K, STAGES), order)


def tiled_copy(rows, along_k, width):
    """Return the tiled copy from global to shared memory: `width` bits per thread along the contiguous extent.

    It uses cp.async from 32 bits on, and a plain copy below.
    """
    vector = width // cutlass.Float16.width
    if width >= 32:
        mode = cute.nvgpu.cpasync.LoadCacheMode.GLOBAL if width == 128 else cute.nvgpu.cpasync.LoadCacheMode.ALWAYS
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=mode)
    else:
        operation = cute.nvgpu.CopyUniversalOp()
    atom = cute.make_copy_atom(operation, cutlass.Float16, num_bits_per_copy=width)
    across = min(THREADS, (TILE_K if along_k else rows) // vector)
    if along_k:
        threads = cute.make_layout((THREADS // across, across), stride=(across, 1))
        values = cute.make_layout((1, vector))
    else:
        threads = cute.make_layout((across, THREADS // across))
        values = cute.make_layout((vector, 1))
    return cute.make_tiled_copy_tv(atom, threads, values)


def tile_coord(m, n):
    """Return (tile along n, tile along m, batch) of this CTA.

    The grid is one-dimensional, because its y and z extents are limited to 65535.
    """
    bidx, _, _ = cute.arch.block_idx()
    tiles_n, tiles_m = (n + TILE_N - 1) // TILE_N, (m + TILE_M - 1) // TILE_M
    return bidx % tiles_n, bidx // tiles_n % tiles_m, bidx // tiles_n // tiles_m


def operand_tiles(mA, mB, batch, tile_m, tile_n, skip):
    """Return the k tiles of a, (tile_m, tile_k, k tiles), and of b, (tile_n, tile_k, k tiles).

    The first k tile starts `skip` columns before the matrix.
    """
    a = mA[batch, None, None]
    b = cute.make_tensor(mB[batch, None, None].iterator, cute.select(mB[batch, None, None].layout, mode=[1, 0]))
    a = cute.domain_offset((tile_m * TILE_M, -skip), a)
    b = cute.domain_offset((tile_n * TILE_N, -skip), b)
    gA = cute.local_tile(a, (TILE_M, TILE_K), (0, None))
    gB = cute.local_tile(b, (TILE_N, TILE_K), (0, None))
    return gA, gB


def partition_copy(thr_copy, gX, sX, rows):
    """Return (global memory tiles, shared memory stages, coordinates in a tile) of this thread's copies."""
    cX = cute.make_identity_tensor((rows, TILE_K))
    return thr_copy.partition_S(gX), thr_copy.partition_D(sX), thr_copy.partition_S(cX)


def ldmatrix_atom(along_k):
    """Return the ldmatrix copy atom; it transposes where k is not the contiguous extent."""
    return cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(not along_k, 4), cutlass.Float16)


@cute.jit
def load_tile(
    copy: cute.TiledCopy,
    tXgX: cute.Tensor,
    tXsX: cute.Tensor,
    tXcX: cute.Tensor,
    rows: cutlass.Int32,
    skip: cutlass.Int32,
    k_tile: cutlass.Int32,
    stage: cutlass.Int32,
    width: cutlass.Constexpr,
):
    """Start copying one k tile into a stage, predicated on the rows of the matrix.

    Rows past the matrix, and the first `skip` columns of k tile 0, keep the zeros of the start.
    """
    for i in cutlass.range_constexpr(cute.size(tXsX, mode=[1])):
        for j in cutlass.range_constexpr(cute.size(tXsX, mode=[2])):
            row, inner = tXcX[(0, 0), i, j]
            if row < rows and (k_tile > 0 or inner >= skip):
                chunk = tXgX[None, i, j, k_tile]
                source = cute.make_tensor(chunk.iterator.align(width // 8), chunk.layout)
                cute.copy(copy, source, tXsX[None, i, j, stage])


def gelu_tanh(v):
    # 0.5 v (1 + tanh(u)) = v sigmoid(2 u), with u = sqrt(2 / pi) (v + 0.044715 v^3)
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    return v * cute.arch.rcp_approx(1.0 + cute.math.exp(-2.0 * u, fastmath=True))


def epilogue(total, bias, column):
    total = total + bias[column].to(cutlass.Float32)
    total = gelu_tanh(total)
    return total


@cute.jit
def store_fragment(tCrC, tCcC, bias, mD, batch, tile_m, tile_n, m, n):
    """Apply the epilogue to this thread's accumulators and store them, predicated on m and n.

    `tCcC` holds the (row, column) of each accumulator within the output tile.
    """
    for e in cutlass.range_constexpr(cute.size(tCrC)):
        row = tile_m * TILE_M + tCcC[e][0]
        column = tile_n * TILE_N + tCcC[e][1]
        if row < m:  # noqa: SIM102
            if column < n:
                total = tCrC[e]
                total = epilogue(total, bias, column)
                mD[batch, row, column] = total.to(mD.element_type)


@cute.kernel
def sm80_kernel(
    mA: cute.Tensor,
    mB: cute.Tensor,
    bias: cute.Tensor,
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    copy_a: cute.TiledCopy,
    copy_b: cute.TiledCopy,
    tiled_mma: cute.TiledMma,
    width_a: cutlass.Constexpr,
    width_b: cutlass.Constexpr,
    a_along_k: cutlass.Constexpr,
    b_along_k: cutlass.Constexpr,
):
    """Compute one output tile: cp.async keeps STAGES k tiles in flight while the warps multiply the oldest one."""
    tidx, _, _ = cute.arch.thread_idx()
    tile_n, tile_m, batch = tile_coord(m, n)
    smem = cutlass.memory.SmemAllocator()
    sA = smem.allocate_tensor(cutlass.Float16, layout_a, 128)
    sB = smem.allocate_tensor(cutlass.Float16, layout_b, 128)
    num_k_tiles = (k + TILE_K - 1) // TILE_K
    # the residue k tile comes first: its first `skip` columns lie before the matrix
    skip = num_k_tiles * TILE_K - k
    gA, gB = operand_tiles(mA, mB, batch, tile_m, tile_n, skip)
    rows_a = m - tile_m * TILE_M
    rows_b = n - tile_n * TILE_N
    thr_copy_a, thr_copy_b = copy_a.get_slice(tidx), copy_b.get_slice(tidx)
    tAgA, tAsA, tAcA = partition_copy(thr_copy_a, gA, sA, TILE_M)
    tBgB, tBsB, tBcB = partition_copy(thr_copy_b, gB, sB, TILE_N)
    tAsA.fill(0.0)
    tBsB.fill(0.0)
    cute.arch.sync_threads()
    thr_mma = tiled_mma.get_slice(tidx)
    tCcC = thr_mma.partition_C(cute.make_identity_tensor((TILE_M, TILE_N)))
    tCrC = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((TILE_M, TILE_N)))
    tCrC.fill(0.0)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA[None, None, 0]))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB[None, None, 0]))
    ldmatrix_a = cute.make_tiled_copy_A(ldmatrix_atom(a_along_k), tiled_mma)
    ldmatrix_b = cute.make_tiled_copy_B(ldmatrix_atom(b_along_k), tiled_mma)
    tCsA, tCrA_copy = ldmatrix_a.get_slice(tidx).partition_S(sA), ldmatrix_a.retile(tCrA)
    tCsB, tCrB_copy = ldmatrix_b.get_slice(tidx).partition_S(sB), ldmatrix_b.retile(tCrB)
    for ahead in cutlass.range_constexpr(STAGES - 1):
        if ahead < num_k_tiles:
            load_tile(copy_a, tAgA, tAsA, tAcA, rows_a, skip, ahead, ahead, width_a)
            load_tile(copy_b, tBgB, tBsB, tBcB, rows_b, skip, ahead, ahead, width_b)
        cute.arch.cp_async_commit_group()
    for k_tile in range(num_k_tiles):
        cute.arch.cp_async_wait_group(STAGES - 2)
        # after the barrier the k tile is visible to all threads, and the stage to be filled next is free
        cute.arch.sync_threads()
        ahead = k_tile + STAGES - 1
        if ahead < num_k_tiles:
            load_tile(copy_a, tAgA, tAsA, tAcA, rows_a, skip, ahead, ahead % STAGES, width_a)
            load_tile(copy_b, tBgB, tBsB, tBcB, rows_b, skip, ahead, ahead % STAGES, width_b)
        cute.arch.cp_async_commit_group()
        stage = k_tile % STAGES
        for step in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            cute.copy(ldmatrix_a, tCsA[None, None, step, stage], tCrA_copy[None, None, step])
            cute.copy(ldmatrix_b, tCsB[None, None, step, stage], tCrB_copy[None, None, step])
            cute.gemm(tiled_mma, tCrC, tCrA[None, None, step], tCrB[None, None, step], tCrC)
    store_fragment(tCrC, tCcC, bias, mD, batch, tile_m, tile_n, m, n)


@cute.jit
def launch_sm80(
    mA: cute.Tensor,
    mB: cute.Tensor,
    bias: cute.Tensor,
    mD: cute.Tensor,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    batches: cutlass.Int32,
    stream: cuda.CUstream,
    width_a: cutlass.Constexpr,
    width_b: cutlass.Constexpr,
    a_along_k: cutlass.Constexpr,
    b_along_k: cutlass.Constexpr,
):
    tiled_mma = cute.make_tiled_mma(mma_op(), cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16))
    layout_a, layout_b = smem_layout(TILE_M, a_along_k), smem_layout(TILE_N, b_along_k)
    copy_a, copy_b = tiled_copy(TILE_M, a_along_k, width_a), tiled_copy(TILE_N, b_along_k, width_b)
    ctas = ((n + TILE_N - 1) // TILE_N) * ((m + TILE_M - 1) // TILE_M) * batches
    sm80_kernel(
        mA, mB, bias, mD, m, n, k, layout_a, layout_b, copy_a, copy_b, tiled_mma, width_a, width_b, a_along_k, b_along_k
    ).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


def call(function, key, arguments, constants=()):
    """Launch on torch's current stream; compile on the first call of each key (dtypes, layouts, vector width).

    Calling a jit function takes milliseconds each time, calling a compiled one takes microseconds.
    """
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)


def gemm(a, b, bias):
    """Return epilogue(a @ b).

    Tensor cores with stages take tensors of the configured element type only. Raises ValueError for shapes and
    TypeError for dtypes.
    """
    check_rank("x", a, 2, 3)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    check_operand("x", a, a.shape, (torch.float16,))
    check_operand("b", b, (*a.shape[:-2], k, n), (a.dtype,))
    d = torch.empty(*a.shape[:-1], n, dtype=a.dtype, device=a.device)
    check_operand("self.linear.bias", bias, (n,), EXACT_DTYPES)
    if d.numel() == 0:
        return d
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = torch.nn.functional.pad(a, (0, 1)), torch.nn.functional.pad(b, (0, 0, 0, 1))
        k = 1
    # all operands as (batch, rows, columns) views
    a, b = a if a.dim() == 3 else a.unsqueeze(0), b if b.dim() == 3 else b.unsqueeze(0)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    bias_dtype = bias.dtype
    bias = from_dlpack(bias.detach()).mark_layout_dynamic()
    # compile-time parameters: access widths in bits, and whether a and b are contiguous along k
    width_a, width_b, a_along_k, b_along_k = access_bits(a), access_bits(b), a.stride(2) == 1, b.stride(1) == 1
    view_a = from_dlpack(a.detach(), assumed_align=width_a // 8)
    view_b = from_dlpack(b.detach(), assumed_align=width_b // 8)
    call(
        launch_sm80,
        (a.dtype, bias_dtype, width_a, width_b, a_along_k, b_along_k),
        (
            view_a.mark_layout_dynamic(leading_dim=2 if a_along_k else 1),
            view_b.mark_layout_dynamic(leading_dim=1 if b_along_k else 2),
            bias,
            from_dlpack(d3).mark_layout_dynamic(leading_dim=2),
            cutlass.Int32(m),
            cutlass.Int32(n),
            cutlass.Int32(k),
            cutlass.Int32(d3.shape[0]),
        ),
        (width_a, width_b, a_along_k, b_along_k),
    )
    return d


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        return gemm(x, self.linear.weight.transpose(-2, -1), self.linear.bias)
