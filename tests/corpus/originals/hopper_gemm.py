"""gemm(a, b) .arch(sm_90a) .tile(128, 256, 64) .mma(bf16) .schedule(cooperative) .cluster(2, 1)"""

import functools
import weakref

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.cute.runtime import from_dlpack
from cutlass.tensor_utils import LayoutEnum
from torch import nn

CLUSTER_M = 2  # CTAs of a cluster along m; TMA multicasts tiles of b to them
CLUSTER_N = 1  # CTAs of a cluster along n; TMA multicasts tiles of a to them
TILE_M = 128  # rows of an output tile
TILE_N = 256  # columns of an output tile
TILE_K = 64  # k extent of one stage
STAGES = 4  # k tiles in shared memory: one is multiplied while TMA fills the others
STORE_N = 64  # columns of an epilogue subtile of 64 rows
MMA_WARPGROUPS = 2  # MMA (consumer) warpgroups; one more is the producer
BUFFERS = 2  # epilogue buffers (64 x STORE_N) per warpgroup in shared memory
BAND = 8  # width in tiles of a raster band, for L2 reuse; CUTLASS: swizzle size
WARPGROUP_M = 64  # rows of an output tile per MMA warpgroup
THREADS = 384  # threads of a CTA
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # dtypes of operands; the kernels compute in float32
operand_tensors: dict = {}  # CuTe tensors of operands that are read in place, for as long as the torch tensors live
compiled: dict = {}


def check_rank(name, tensor, least, most=None):
    """Check that an operand has `least` to `most` axes; `most` None means no limit."""
    if tensor.dim() < least or (most is not None and tensor.dim() > most):
        if most is None:
            wanted = f"{least} axes or more"
        else:
            wanted = f"{least} axes" if most == least else f"{least} to {most} axes"
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}; this kernel wants {wanted}")


def check_axes(a):
    """Check that the operands are matrices or batches of matrices."""
    check_rank("a", a, 2, 3)


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


def check_product(a, b, batch):
    """Check b against a: batch, k and dtype must match. Return (m, n, k)."""
    m, k = a.shape[-2], a.shape[-1]
    n = b.shape[-1]
    shape = (*batch, k, n)
    check_operand("b", b, shape, (torch.bfloat16,))
    return m, n, k


def check_operands():
    """Check the shapes of the tensors that the epilogue reads; `shape` is that of the product."""


def pad_k(a, b):
    """Return a and b padded from k = 0 to k = 1 with zeros, so that the product is zero."""
    a = torch.nn.functional.pad(a, (0, 1))
    b = torch.nn.functional.pad(b, (0, 0, 0, 1))
    return a, b


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
        return from_dlpack(tensor).mark_layout_dynamic()
    return from_dlpack(tensor).mark_layout_dynamic(leading_dim=2 if tensor.stride(2) == 1 else 1)


@cute.jit
def pack_block(source):
    """Return (block of rows, batch, block of k) of this CTA's 32 x 32 elements."""
    cta, _, _ = cute.arch.block_idx()
    # one-dimensional grid: its y and z extents are limited to 65535
    blocks, batches = (source.shape[1] + 31) // 32, source.shape[0]
    return cta % blocks, cta // blocks % batches, cta // blocks // batches


@cute.kernel
def pack_kernel(source: cute.Tensor, target: cute.Tensor, along_k: cutlass.Constexpr):
    """Copy 32 x 32 elements (row, k) through shared memory: read along the contiguous extent, write along k."""
    x, y, _ = cute.arch.thread_idx()
    block_row, batch, block_k = pack_block(source)
    smem = cutlass.memory.SmemAllocator()
    tile = smem.allocate_tensor(cutlass.BFloat16, cute.make_layout((32, 32), stride=(33, 1)), 16)
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
def launch_pack(source: cute.Tensor, target: cute.Tensor, stream: cuda.CUstream, along_k: cutlass.Constexpr):
    """source (batch, rows, k) -> target of the same shape, K-major."""
    batches, rows, k = source.shape
    pack_kernel(source, target, along_k).launch(
        grid=[batches * ((rows + 31) // 32) * ((k + 31) // 32), 1, 1], block=[32, 8, 1], stream=stream
    )


def call(function, key, arguments, constants=()):
    """Launch on torch's current stream; compile on the first call of each key (dtypes, layouts, vector width).

    Calling a jit function takes milliseconds each time, calling a compiled one takes microseconds.
    """
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)


def make_tma_readable(tensor, any_major):
    """Return the (batch, rows, k) operand if TMA and wgmma can read it, else a K-major copy with 16-byte rows.

    `any_major`: the operand may also be contiguous along its rows.
    """
    if is_tma_readable(tensor) and (any_major or tensor.stride(2) == 1):
        return tensor
    batches, rows, k = tensor.shape
    unit = 128 // cutlass.BFloat16.width
    padded = (k + unit - 1) // unit * unit
    copy = torch.empty(batches, rows, padded, dtype=tensor.dtype, device=tensor.device)[:, :, :k]
    along_k = tensor.stride(2) == 1
    call(
        launch_pack,
        (along_k, tensor.stride(1) == 1),
        (source_view(tensor), from_dlpack(copy, assumed_align=16).mark_layout_dynamic(leading_dim=2)),
        (along_k,),
    )
    return copy


def make_operand(tensor, transposed, any_major):
    """Return (CuTe tensor (batch, rows, k), whether k is the contiguous extent) of a matrix.

    `transposed`: the matrix is stored as (k, rows). `any_major`: the kernel also reads it contiguous along its rows.
    Raises TypeError for another dtype than the configured one.
    """
    key, place = (id(tensor), transposed), (tensor.data_ptr(), tensor.shape, tensor.stride())
    if key in operand_tensors and operand_tensors[key][0]() is tensor and operand_tensors[key][1] == place:
        return operand_tensors[key][2]
    if tensor.dtype != torch.bfloat16:
        raise TypeError(f"this kernel multiplies {torch.bfloat16}, not {tensor.dtype}")
    view = tensor.detach()
    view = view.transpose(-2, -1) if transposed else view
    view = view if view.dim() == 3 else view.unsqueeze(0)
    packed = make_tma_readable(view, any_major)
    along_k = packed.stride(2) == 1
    made = (from_dlpack(packed, assumed_align=16).mark_layout_dynamic(leading_dim=2 if along_k else 1), along_k)
    if packed is view:
        operand_tensors[key] = (weakref.ref(tensor, lambda _: operand_tensors.pop(key, None)), place, made)
    return made


def make_operands(a, b):
    """Return the CuTe tensors of the kernel's left and right operand; b is the left one of a transposed product."""
    return (
        make_operand(a, False, True),
        make_operand(b, True, True),
    )


def can_store_by_tma(d):
    """Return whether TMA can store the result; otherwise the threads store it."""
    return d.shape[-1] * d.element_size() % 16 == 0


@functools.cache
def max_active_clusters():
    """Return how many clusters of this shape the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(CLUSTER_M * CLUSTER_N)


def result_view(d, by_tma):
    """Return the CuTe tensor of the (batch, m, n) result, transposed if the kernel computes the transpose."""
    alignment = 16 if by_tma else None
    return from_dlpack(d, assumed_align=alignment).mark_layout_dynamic(leading_dim=2)


def batch_last(tensor):
    """Permute (batch, rows, columns) to (rows, columns, batch)."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 2, 0]))


def make_tiled_mma(a_layout, b_layout):
    """Return the tiled wgmma of one warpgroup: 64 x tile_n with float32 accumulators."""
    return sm90.make_trivial_tiled_mma(
        cutlass.BFloat16,
        cutlass.BFloat16,
        a_layout.sm90_mma_major_mode(),
        b_layout.sm90_mma_major_mode(),
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, TILE_N),
    )


def make_loads(a, b):
    """Return the tiled MMA, the staged shared memory layouts, and the TMA atoms and tensors of a and b.

    a is (batch, m, k), b (batch, n, k).
    """
    a, b = batch_last(a), batch_last(b)
    tile = (TILE_M, TILE_N, TILE_K)
    a_layout, b_layout = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    tiled_mma = make_tiled_mma(a_layout, b_layout)
    a_smem_layout = sm90.make_smem_layout_a(a_layout, tile, cutlass.BFloat16, STAGES)
    b_smem_layout = sm90.make_smem_layout_b(b_layout, tile, cutlass.BFloat16, STAGES)
    tma_a, mA = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(),
        a,
        cute.slice_(a_smem_layout, (None, None, 0)),
        (TILE_M, TILE_K),
        num_multicast=CLUSTER_N,
    )
    tma_b, mB = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SMulticastOp(),
        b,
        cute.slice_(b_smem_layout, (None, None, 0)),
        (TILE_N, TILE_K),
        num_multicast=CLUSTER_M,
    )
    return tiled_mma, a_smem_layout, b_smem_layout, tma_a, mA, tma_b, mB


def make_store(mD, by_tma):
    """Return (shared memory layout of the epilogue buffers, TMA atom or None, its tensor) for d (m, n, batch)."""
    layout = LayoutEnum.ROW_MAJOR
    d_smem_layout = sm90.make_smem_layout_epi(cutlass.BFloat16, layout, (64, STORE_N), MMA_WARPGROUPS * BUFFERS)
    tma_d, tma_mD = None, mD
    if cutlass.const_expr(by_tma):
        tma_d, tma_mD = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(),
            mD,
            cute.slice_(d_smem_layout, (None, None, 0)),
            (64, STORE_N),
        )
    return d_smem_layout, tma_d, tma_mD


def make_pipeline(barriers):
    """Return the TMA mainloop pipeline over the mbarriers of all stages.

    A full barrier completes when all bytes of the stage have arrived, an empty barrier when all consumers released it.
    """
    arrivals = 4 * MMA_WARPGROUPS
    return pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # each MMA warp arrives at the empty barriers of all CTAs that multicast to it
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, arrivals * (CLUSTER_M + CLUSTER_N - 1)),
        tx_count=(TILE_M + TILE_N) * TILE_K * cutlass.BFloat16.width // 8,
        cta_layout_vmnk=cute.make_layout((1, CLUSTER_M, CLUSTER_N, 1)),
    )


def count_tiles(m, n):
    """Return (rows, columns) of the grid of output tiles, in units of clusters."""
    rows = (m + TILE_M * CLUSTER_M - 1) // (TILE_M * CLUSTER_M)
    columns = (n + TILE_N * CLUSTER_N - 1) // (TILE_N * CLUSTER_N)
    return rows, columns


def make_schedule(rows, columns, num_tiles, cluster, num_clusters):
    """Return the tile schedule of this cluster, as `work_range` and `find_tile` take it."""
    return rows, columns, num_tiles, cluster, num_clusters


def partition_load(load, cta, sharers):
    """Return (TMA atom, global tiles, shared memory stages), partitioned for this CTA's slice of a multicast tile."""
    atom, gX, sX = load
    tXsX, tXgX = cpasync.tma_partition(
        atom, cta, cute.make_layout(sharers), cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2)
    )
    return atom, tXgX, tXsX


def multicast_masks(cta_n):
    """Return the TMA multicast masks of a and b: a bit per receiving CTA, or None without multicast."""
    mask_a = None
    mask_b = cutlass.Int16((1 << CLUSTER_M) - 1) << cutlass.Int16(cta_n * CLUSTER_M)
    return mask_a, mask_b


def work_range(schedule):
    """Return (first, last, step) of the work indices of this cluster."""
    _, _, num_tiles, cluster, num_clusters = schedule
    return cluster, num_tiles, num_clusters


@cute.jit
def cluster_tile(tile: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """Return (m, n, batch) of an output tile, in units of clusters.

    Tiles are rasterised in bands of BAND tiles, one band after the other, so that operands are reused from L2.
    """
    batch = tile // (rows * columns)
    inside = tile % (rows * columns)
    first = inside // (BAND * columns) * BAND
    within = inside % (BAND * columns)
    high = cutlass.min(rows - first, BAND)
    m, n = first + within % high, within // high
    return m, n, batch


@cute.jit
def find_tile(schedule, item, num_k_tiles):
    """Return (tile, m, n, batch, first k tile, number of k tiles) of a work index; m and n in units of clusters."""
    tile, k_first, k_count = item, 0, num_k_tiles
    tile_m, tile_n, batch = cluster_tile(tile, schedule[0], schedule[1])
    return tile, tile_m, tile_n, batch, k_first, k_count


@cute.jit
def load_k_tiles(mainloop_pipeline, producer_state, copy_a, copy_b, at_a, at_b, k_first, k_last):
    """Load the k tiles [k_first, k_last) of one output tile into the next stages; return the producer state.

    `at_a` and `at_b` are (tile index, batch, multicast mask) of each operand.
    """
    tma_a, tAgA, tAsA = copy_a
    tma_b, tBgB, tBsB = copy_b
    tile_a, batch_a, mask_a = at_a
    tile_b, batch_b, mask_b = at_b
    for k_tile in cutlass.range(k_first, k_last, unroll=1):
        mainloop_pipeline.producer_acquire(producer_state)
        full_barrier = mainloop_pipeline.producer_get_barrier(producer_state)
        cute.copy(
            tma_a,
            tAgA[None, tile_a, k_tile, batch_a],
            tAsA[None, producer_state.index],
            tma_bar_ptr=full_barrier,
            mcast_mask=mask_a,
        )
        cute.copy(
            tma_b,
            tBgB[None, tile_b, k_tile, batch_b],
            tBsB[None, producer_state.index],
            tma_bar_ptr=full_barrier,
            mcast_mask=mask_b,
        )
        mainloop_pipeline.producer_commit(producer_state)
        producer_state.advance()
    return producer_state


@cute.jit
def load_tiles(mainloop_pipeline, load_a, load_b, schedule, num_k_tiles, cta_m, cta_n):
    """Run the producer loop: load the k tiles of every work tile of this cluster, as far ahead as stages are free.

    `load_a` and `load_b` are (TMA atom, global tiles, shared memory stages).
    """
    # CTAs along n share tiles of a, CTAs along m tiles of b: each loads a slice and multicasts it
    copy_a = partition_load(load_a, cta_n, CLUSTER_N)
    copy_b = partition_load(load_b, cta_m, CLUSTER_M)
    mask_a, mask_b = multicast_masks(cta_n)
    producer_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    first, last, step = work_range(schedule)
    for item in cutlass.range(first, last, step, unroll=1):
        _, tile_m, tile_n, batch, k_first, k_count = find_tile(schedule, item, num_k_tiles)
        tile_m = tile_m * CLUSTER_M + cta_m
        tile_n = tile_n * CLUSTER_N + cta_n
        k_last = k_first + k_count
        producer_state = load_k_tiles(
            mainloop_pipeline,
            producer_state,
            copy_a,
            copy_b,
            (tile_m, batch, mask_a),
            (tile_n, batch, mask_b),
            k_first,
            k_last,
        )
    mainloop_pipeline.producer_tail(producer_state)


def make_fragments(tiled_mma, sA, sB, warp_group, lane):
    """Return (wgmma operand fragments, accumulators, coordinates of the accumulators in the warpgroup's tile)."""
    # rows of this warpgroup
    sA = cute.local_tile(sA, (WARPGROUP_M, TILE_K, STAGES), (warp_group, 0, 0))
    thr_mma = tiled_mma.get_slice(0)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
    accumulators = cute.make_rmem_tensor(tiled_mma.partition_shape_C((WARPGROUP_M, TILE_N)), cutlass.Float32)
    tCcC = tiled_mma.get_slice(lane).partition_C(cute.make_identity_tensor((WARPGROUP_M, TILE_N)))
    return (tCrA, tCrB), accumulators, tCcC


@cute.jit
def start_states():
    """Return the initial (read, release) pipeline states of an MMA warpgroup.

    With ping-pong, warpgroup 1 skips the k tiles of the first output tile, which belongs to warpgroup 0.
    """
    read_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    release_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    return read_state, release_state


def make_smem_copy(tiled_mma, accumulators, sD, lane):
    """Return (stmatrix tiled copy, accumulators, registers of one subtile, buffers), retiled for the copy."""
    layout = LayoutEnum.ROW_MAJOR
    stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), cutlass.Float16)
    store_op = sm90.sm90_get_smem_store_op(layout, cutlass.BFloat16, cutlass.Float32)
    tiled_copy_r2s = cute.make_tiled_copy_S(store_op, cute.make_tiled_copy_C_atom(stmatrix, tiled_mma))
    tRS_sD = tiled_copy_r2s.get_slice(lane).partition_D(sD)
    tRS_rAcc = tiled_copy_r2s.retile(accumulators)
    tRS_rD = cute.make_rmem_tensor(tRS_sD[None, None, None, 0].shape, cutlass.BFloat16)
    return tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD


def partition_store(tma_d, tma_mD, sD):
    """Return (epilogue buffers, global tiles), partitioned for TMA stores."""
    gD = cute.local_tile(tma_mD, (64, STORE_N), (None, None, None))
    return cpasync.tma_partition(tma_d, 0, cute.make_layout(1), cute.group_modes(sD, 0, 2), cute.group_modes(gD, 0, 2))


@cute.jit
def mainloop(tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, release_state, num_k_tiles):
    """Multiply the k tiles of one output tile with both wgmma operands in shared memory.

    The last wgmma group is still in flight on return, and its stage is not yet released.
    """
    tCrA, tCrB = fragments
    mainloop_pipeline.consumer_wait(read_state)
    warpgroup.fence()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
    for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
        at = (None, None, k_block, read_state.index)
        cute.gemm(tiled_mma, accumulators, tCrA[at], tCrB[at], accumulators)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    read_state.advance()
    for _ in cutlass.range(1, num_k_tiles, unroll=1):
        mainloop_pipeline.consumer_wait(read_state)
        for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
            at = (None, None, k_block, read_state.index)
            cute.gemm(tiled_mma, accumulators, tCrA[at], tCrB[at], accumulators)
        warpgroup.commit_group()
        warpgroup.wait_group(1)  # the previous wgmma group is complete: release its stage
        mainloop_pipeline.consumer_release(release_state)
        read_state.advance()
        release_state.advance()
    return read_state, release_state


@cute.jit
def finish_mainloop(mainloop_pipeline, release_state):
    """Wait for the last wgmma group and release its stage; return the release state."""
    warpgroup.wait_group(0)
    mainloop_pipeline.consumer_release(release_state)
    release_state.advance()
    return release_state


@cute.jit
def multiply(tiled_mma, accumulators, fragments, mainloop_pipeline, states, k_count):
    """Run the mainloop of one output tile; return the (read, release) pipeline states."""
    read_state, release_state = states
    read_state, release_state = mainloop(
        tiled_mma, accumulators, fragments, mainloop_pipeline, read_state, release_state, k_count
    )
    release_state = finish_mainloop(mainloop_pipeline, release_state)
    return read_state, release_state


@cute.jit
def convert_subtile(tRS_rAcc, tRS_rD, i: cutlass.Constexpr, j: cutlass.Constexpr):
    """Apply the epilogue to the accumulators of one 64 x STORE_N subtile and convert them to the result's type."""
    for e in cutlass.range_constexpr(cute.size(tRS_rD)):
        total = tRS_rAcc[j * cute.size(tRS_rD) + e, i, 0]
        tRS_rD[e] = total.to(cutlass.BFloat16)


@cute.jit
def wait_for_buffer(warp_idx, in_flight: cutlass.Constexpr):
    """Wait until at most `in_flight` TMA store groups still read shared memory; the issuing thread waits."""
    if warp_idx % 4 == 0:
        with cute.arch.elect_one():
            cute.arch.cp_async_bulk_wait_group(in_flight, read=True)


@cute.jit
def store_by_threads(sD, mD, row, column, batch, buffer, lane):
    """Store one buffer to d element by element, predicated on m and n, with coalesced accesses."""
    m, n, _ = mD.shape
    for e in cutlass.range(lane, 64 * STORE_N, 128, unroll=4):
        i, j = e // STORE_N, e % STORE_N
        if row + i < m and column + j < n:
            mD[row + i, column + j, batch] = sD[i, j, buffer]


@cute.jit
def store_tile(output, at, warp_idx, warp_group, lane):
    """Apply the epilogue to a warpgroup's part of an output tile and store it to d.

    `output` is (shared memory copy, TMA copy or None, sD, d); without a TMA copy the threads store.
    """
    smem_copy, tma_copy, sD, mD = output
    tiled_copy_r2s, tRS_rAcc, tRS_rD, tRS_sD = smem_copy
    m0, n0, batch = at
    across = TILE_N // STORE_N
    for i in cutlass.range_constexpr(WARPGROUP_M // 64):
        for j in cutlass.range_constexpr(TILE_N // STORE_N):
            # one 64 x STORE_N subtile at a time: registers, shared memory, global memory
            subtile = i * across + j
            buffer = warp_group * BUFFERS + subtile % BUFFERS
            row, column = m0 + 64 * i, n0 + STORE_N * j
            convert_subtile(tRS_rAcc, tRS_rD, i, j)
            if cutlass.const_expr(tma_copy is not None):
                wait_for_buffer(warp_idx, BUFFERS - 1)
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            cute.copy(tiled_copy_r2s, tRS_rD, tRS_sD[None, None, None, buffer])
            if cutlass.const_expr(tma_copy is not None):
                cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=1 + warp_group, number_of_threads=128)
            if cutlass.const_expr(tma_copy is not None):
                tma_d, bSG_sD, bSG_gD = tma_copy
                if warp_idx % 4 == 0:
                    with cute.arch.elect_one():
                        target = bSG_gD[None, row // 64, column // STORE_N, batch]
                        cute.copy(tma_d, bSG_sD[None, buffer], target)
                        cute.arch.cp_async_bulk_commit_group()
            else:
                store_by_threads(sD, mD, row, column, batch, buffer, lane)


@cute.jit
def multiply_and_store(tiled_mma, smem, mainloop_pipeline, store, schedule, num_k_tiles, ctas, tidx, warp_idx):
    """Run the consumer loop of one MMA warpgroup: for each output tile the mainloop, then the epilogue.

    `smem` is (sA, sB, sD), `store` is (TMA atom or None, its tensor, d), `ctas` is the CTA's (m, n) in the cluster.
    """
    sA, sB, sD = smem
    tma_d, tma_mD, mD = store
    cta_m, cta_n = ctas
    warp_group, lane = warp_idx // 4 - 1, tidx % 128
    fragments, accumulators, _tCcC = make_fragments(tiled_mma, sA, sB, warp_group, lane)
    read_state, release_state = start_states()
    smem_copy = make_smem_copy(tiled_mma, accumulators, sD, lane)
    tma_copy = None
    if cutlass.const_expr(tma_d is not None):
        tma_copy = (tma_d, *partition_store(tma_d, tma_mD, sD))
    output = (smem_copy, tma_copy, sD, mD)
    first, last, step = work_range(schedule)
    for item in cutlass.range(first, last, step, unroll=1):
        _tile, tile_m, tile_n, batch, _k_first, k_count = find_tile(schedule, item, num_k_tiles)
        m0 = (tile_m * CLUSTER_M + cta_m) * TILE_M
        m0 = m0 + warp_group * WARPGROUP_M
        n0 = (tile_n * CLUSTER_N + cta_n) * TILE_N
        at = (m0, n0, batch)
        read_state, release_state = multiply(
            tiled_mma, accumulators, fragments, mainloop_pipeline, (read_state, release_state), k_count
        )
        store_tile(output, at, warp_idx, warp_group, lane)
    if cutlass.const_expr(tma_copy is not None):
        wait_for_buffer(warp_idx, 0)


@cute.kernel
def gemm_kernel(
    tma_a: cute.CopyAtom,
    mA: cute.Tensor,
    tma_b: cute.CopyAtom,
    mB: cute.Tensor,
    tma_d: cute.CopyAtom,
    tma_mD: cute.Tensor,
    mD: cute.Tensor,
    tiled_mma: cute.TiledMma,
    a_smem_layout: cute.ComposedLayout,
    b_smem_layout: cute.ComposedLayout,
    d_smem_layout: cute.ComposedLayout,
):
    """Persistent warp-specialised GEMM: one producer warp issues TMA loads, the MMA warpgroups consume them.

    The producer runs ahead of the consumers, also into the k tiles of the next output tile.
    """
    tidx, _, _ = cute.arch.thread_idx()
    cta_m, cta_n, cluster = cute.arch.block_idx()
    _, _, num_clusters = cute.arch.grid_dim()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp_idx == 0:
        cpasync.prefetch_descriptor(tma_a)
        cpasync.prefetch_descriptor(tma_b)
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, STAGES * 2)
    sA = smem.allocate_tensor(cutlass.BFloat16, a_smem_layout.outer, 1024, swizzle=a_smem_layout.inner)
    sB = smem.allocate_tensor(cutlass.BFloat16, b_smem_layout.outer, 1024, swizzle=b_smem_layout.inner)
    sD = smem.allocate_tensor(cutlass.BFloat16, d_smem_layout.outer, 1024, swizzle=d_smem_layout.inner)
    mainloop_pipeline = make_pipeline(barriers)
    m, n, batches = mD.shape
    rows, columns = count_tiles(m, n)
    num_tiles = rows * columns * batches
    gA = cute.local_tile(mA, (TILE_M, TILE_K), (None, None, None))
    gB = cute.local_tile(mB, (TILE_N, TILE_K), (None, None, None))
    num_k_tiles = cute.size(gA, mode=[3])
    schedule = make_schedule(rows, columns, num_tiles, cluster, num_clusters)
    if warp_idx < 4:
        cute.arch.setmaxregister_decrease(40)
        if warp_idx == 0:
            load_a, load_b = (tma_a, gA, sA), (tma_b, gB, sB)
            load_tiles(mainloop_pipeline, load_a, load_b, schedule, num_k_tiles, cta_m, cta_n)
    else:
        cute.arch.setmaxregister_increase(232)
        multiply_and_store(
            tiled_mma,
            (sA, sB, sD),
            mainloop_pipeline,
            (tma_d, tma_mD, mD),
            schedule,
            num_k_tiles,
            (cta_m, cta_n),
            tidx,
            warp_idx,
        )


def grid_clusters(m, n, batches, max_clusters):
    """Return the number of clusters to launch; at most `max_clusters` are resident at once."""
    rows, columns = count_tiles(m, n)
    num_tiles = rows * columns * batches
    return cutlass.min(num_tiles, max_clusters)


@cute.jit
def launch_gemm(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mD: cute.Tensor,
    stream: cuda.CUstream,
    by_tma: cutlass.Constexpr,
    max_clusters: cutlass.Constexpr,
):
    """a (batch, m, k), b (batch, n, k), d (batch, m, n); `max_clusters`: clusters that are resident at once."""
    tiled_mma, a_smem_layout, b_smem_layout, tma_a, mA, tma_b, mB = make_loads(mA, mB)
    mD = batch_last(mD)
    d_smem_layout, tma_d, tma_mD = make_store(mD, by_tma)
    m, n, batches = mD.shape
    gemm_kernel(tma_a, mA, tma_b, mB, tma_d, tma_mD, mD, tiled_mma, a_smem_layout, b_smem_layout, d_smem_layout).launch(
        grid=[CLUSTER_M, CLUSTER_N, grid_clusters(m, n, batches, max_clusters)],
        block=[THREADS, 1, 1],
        cluster=[CLUSTER_M, CLUSTER_N, 1],
        stream=stream,
    )


def gemm(a, b):
    """Return epilogue(a @ b)."""
    check_axes(a)
    m, n, k = check_product(a, b, a.shape[:-2])
    d = torch.empty(*a.shape[:-2], m, n, dtype=torch.bfloat16, device=a.device)
    check_operands()
    if d.numel() == 0:
        return d
    if k == 0:  # an empty sum is zero: pad k with zeros
        a, b = pad_k(a, b)
    (left, left_along_k), (right, right_along_k) = make_operands(a, b)
    d3 = d if d.dim() == 3 else d.unsqueeze(0)
    by_tma = can_store_by_tma(d3)
    max_clusters = max_active_clusters()
    call(
        launch_gemm,
        (by_tma, left_along_k, right_along_k),
        (left, right, result_view(d3, by_tma)),
        (by_tma, max_clusters),
    )
    return d


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return gemm(a, b)
