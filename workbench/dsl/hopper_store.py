"""What a Hopper kernel does with a finished tile, as text: store it, reduce its rows or columns, or add up the parts of k in a cluster or by a second kernel."""

from __future__ import annotations

STORE_SETUP = """\
        fragments = cute.make_tiled_copy_C_atom(cute.make_copy_atom(warp.StMatrix8x8x16bOp({by_columns}, 4), cutlass.Float16), tiled_mma)
        to_shared = cute.make_tiled_copy_S(sm90.sm90_get_smem_store_op(LayoutEnum.{major}, {result}, cutlass.Float32), fragments)
        into_d = to_shared.get_slice(lane).partition_D(shared_d)
        results = to_shared.retile(totals)
        piece = cute.make_rmem_tensor(into_d[None, None, None, 0].shape, {result})
{held}        if cutlass.const_expr(by_tma):
            tiles_d = cute.local_tile(d, (64, STORE_N), (None, None, None))
            out_d, target_d = cpasync.tma_partition(tma_d, 0, cute.make_layout(1), cute.group_modes(shared_d, 0, 2), cute.group_modes(tiles_d, 0, 2))
"""
STORE = """\
            for i in cutlass.range_constexpr(ROWS // 64):
                for j in cutlass.range_constexpr(TILE_N // STORE_N):
                    # 64 rows and STORE_N columns at a time: registers, shared memory, global memory
                    buffer = group * BUFFERS + (i * (TILE_N // STORE_N) + j) % BUFFERS
                    row, column = m0 + 64 * i, n0 + STORE_N * j
{fetch}                    for e in cutlass.range_constexpr(cute.size(piece)):
{finish}
                    if cutlass.const_expr(by_tma):
                        if warp_index % 4 == 0:
                            with cute.arch.elect_one():
                                cute.arch.cp_async_bulk_wait_group(BUFFERS - 1, read=True)  # what was in this buffer has left
                    cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
                    cute.copy(to_shared, piece, into_d[None, None, None, buffer])
                    if cutlass.const_expr(by_tma):
                        cute.arch.fence_proxy("async.shared", space="cta")
                    cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
                    if cutlass.const_expr(by_tma):
                        if warp_index % 4 == 0:
                            with cute.arch.elect_one():
                                cute.copy(tma_d, out_d[None, buffer], target_d[None, row // 64, column // STORE_N, batch])
                                cute.arch.cp_async_bulk_commit_group()
                    else:
                        for e in cutlass.range(lane, 64 * STORE_N, 128, unroll=4):
                            if row + {e_row} < m and column + {e_column} < n:
                                d_plain[row + {e_row}, column + {e_column}, batch] = shared_d[{e_row}, {e_column}, buffer]
        if cutlass.const_expr(by_tma):
            if warp_index % 4 == 0:
                with cute.arch.elect_one():
                    cute.arch.cp_async_bulk_wait_group(0, read=True)
"""
FETCH = '''
@cute.jit
def fetch(held: cute.Tensor, source: cute.Tensor, where: cute.Tensor, i: cutlass.Constexpr, j: cutlass.Constexpr, m0: cutlass.Int32, n0: cutlass.Int32, batch: cutlass.Int32, pairs: cutlass.Constexpr):
    """What this thread needs of 64 rows and STORE_N columns of a (batch, m, n) tensor, into registers; `pairs`: two neighbouring columns in one access."""
    batches, m, n = source.shape
    for e in cutlass.range_constexpr(0, STORE_N // 2, 2 if pairs else 1):
        row, column = m0 + where[j * (STORE_N // 2) + e, i, 0][0], n0 + where[j * (STORE_N // 2) + e, i, 0][1]
        if row < m and column < n:
            if cutlass.const_expr(pairs):
                wide = cutlass.Int32 if source.element_type.width == 16 else cutlass.Int64
                both = cute.make_tensor(cute.recast_ptr(source.iterator, dtype=wide), cute.make_layout((batches, m, n // 2), stride=(source.stride[0] // 2, source.stride[1] // 2, 1)))
                cute.recast_tensor(held, wide)[e // 2] = both[batch, row, column // 2]
            else:
                held[e] = source[batch, row, column]

'''
SPREAD = '''
def spread(tensor, shape):
    """(a tensor that the epilogue reads with the product's shape, as (batch, m, n), contiguous along n; whether two neighbouring columns can be read in one access)."""
    view = torch.broadcast_to(tensor.detach(), shape)
    view = view if view.stride(-1) == 1 else view.contiguous()
    view = view if view.dim() == 3 else view.unsqueeze(0)
    return view, view.element_size() in (2, 4) and view.shape[2] % 2 == 0 and view.stride(0) % 2 == 0 and view.stride(1) % 2 == 0 and view.data_ptr() % (2 * view.element_size()) == 0

'''
REDUCE_ROWS = """\
            for i in cutlass.range_constexpr(ROWS // 64):
                found = cute.make_rmem_tensor(cute.make_layout(2), cutlass.Float32)  # of the two rows that this thread has a part of
                found.fill({start})
                for j in cutlass.range_constexpr(TILE_N // STORE_N):
{fetch}                    for e in cutlass.range_constexpr(STORE_N // 2):
{finish}
                        total = total if n0 + where[j * (STORE_N // 2) + e, i, 0][1] < n else {start}
                        found[e // 2 % 2] = {combine}
                for h in cutlass.range_constexpr(2):
                    value = found[h]
                    for step in cutlass.range_constexpr(2):
                        other = cute.arch.shuffle_sync_bfly(value, offset=1 << step)  # four threads share a row
                        value = {combine_value}
                    row = m0 + where[2 * h, i, 0][0]
                    if lane % 4 == 0 and row < m and n0 < n:
                        partial[n0 // TILE_N, batch, row] = value
"""
REDUCE_COLUMNS = """\
            for j in cutlass.range_constexpr(TILE_N // STORE_N):
                found = cute.make_rmem_tensor(cute.make_layout(STORE_N // 4), cutlass.Float32)  # of the columns that this thread has a part of
                found.fill({start})
                for i in cutlass.range_constexpr(ROWS // 64):
{fetch}                    for e in cutlass.range_constexpr(STORE_N // 2):
{finish}
                        total = total if m0 + where[j * (STORE_N // 2) + e, i, 0][0] < m else {start}
                        found[e // 4 * 2 + e % 2] = {combine}
                for h in cutlass.range_constexpr(STORE_N // 4):
                    value = found[h]
                    for step in cutlass.range_constexpr(2, 5):
                        other = cute.arch.shuffle_sync_bfly(value, offset=1 << step)  # eight threads share a column
                        value = {combine_value}
                    column = n0 + where[j * (STORE_N // 2) + h // 2 * 4 + h % 2, 0, 0][1]
                    part = m0 // ROWS * 4 + warp_index % 4
                    if lane % 32 < 4 and column < n and part < partial.shape[0]:
                        partial[part, batch, column] = value
"""
GATHER = '''@cute.kernel
def gather_kernel(partial: cute.Tensor, d: cute.Tensor, extent: cutlass.Int32):
    """The {how} over {what}: 32 results per CTA, eight warps that take every eighth part, then one; always in the same order."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks = (d.shape[1] + 31) // 32
    block, batch = cta % blocks, cta // blocks  # along one axis of the grid: the others end at 65535
    found = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((8, 32), stride=(32, 1)), 16)
{early}    parts, _, length = partial.shape
    lane, at = thread % 32, block * 32 + thread % 32
    total = {start}
    if at < length:
        for part in cutlass.range(thread // 32, parts, 8, unroll=4):
            total = {combine}
    found[thread // 32, lane] = total
    cute.arch.sync_threads()
    if thread < 32 and at < length:
        for other in cutlass.range_constexpr(1, 8):
            total = {combine_found}
{after}
        d[batch, at] = total.to(d.element_type)


@cute.jit
def gather(partial: cute.Tensor, d: cute.Tensor, extent: cutlass.Int32, stream: cuda.CUstream):
    gather_kernel(partial, d, extent).launch(grid=[((d.shape[1] + 31) // 32) * d.shape[0], 1, 1], block=[256, 1, 1], stream=stream{pdl})


'''
ADD_PARTS = '''@cute.kernel
def combine_kernel(partial: cute.Tensor, {parameter}d: cute.Tensor):
    """One output per thread: the sum of its SPLITS partial sums."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
{early}    batches, m, n = d.shape
    index = block * 256 + thread
    row, column, batch = index // n % m, index % n, index // n // m
    if batch < batches:
        total = cutlass.Float32(0.0)
        for split in cutlass.range_constexpr(SPLITS):
            total += partial[batch * SPLITS + split, row, column]
{epilogue}
        d[batch, row, column] = total.to(d.element_type)


@cute.jit
def combine(partial: cute.Tensor, {parameter}d: cute.Tensor, stream: cuda.CUstream):
    combine_kernel(partial, {argument}d).launch(grid=[(cute.size(d) + 255) // 256, 1, 1], block=[256, 1, 1], stream=stream{pdl})


'''
ADD_UP = """\
            for e in cutlass.range_constexpr(cute.size(totals)):
                sums[group * ROWS + where[e][0], where[e][1]] = totals[e]
    # the CTAs of a cluster have a part of k each: every one adds up its share of the tile out of all their shared memories, always in the same order
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    tile_m, tile_n, batch = place(cluster, rows, columns)
    theirs = cute.make_rmem_tensor(cute.make_layout((SPLITS, EACH)), cutlass.Float32)
    for first in cutlass.range_constexpr(0, SHARE, EACH * THREADS):
        for e in cutlass.range_constexpr(EACH):
            at = in_k * SHARE + cutlass.min(first + e * THREADS + thread, SHARE - 1)
            i, j = {at}
            for peer in cutlass.range_constexpr(SPLITS):
                address = cute.arch.map_dsmem_ptr(sums.iterator + cute.crd2idx((i, j), sums.layout), cutlass.Int32(peer)).toint()
                theirs[peer, e] = cute.arch.load(cute.make_ptr(cutlass.Float32, address, cute.AddressSpace.smem), cutlass.Float32, ss="cluster")
        for e in cutlass.range_constexpr(EACH):
            at = in_k * SHARE + first + e * THREADS + thread
            i, j = {at}
            row, column = tile_m * TILE_M + i, tile_n * TILE_N + j
            if first + e * THREADS + thread < SHARE and row < m and column < n:
                total = cutlass.Float32(0.0)
                for peer in cutlass.range_constexpr(SPLITS):
                    total += theirs[peer, e]
{epilogue}
                d[row, column, batch] = total.to(d.element_type)
    # nobody leaves while another one reads its sums
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
"""
