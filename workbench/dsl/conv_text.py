"""Text of the product of a convolution on Hopper, which `conv_hopper` fills in; `conv_mma` has places and store from here, and `conv_around` what is beside the product."""

from __future__ import annotations

CONSTANTS = '''
TILE_M, TILE_N, TILE_K = {tm}, {tn}, {tk}  # places and channels of the result that one tile covers, and how many input channels one stage holds
CLUSTER = {cluster}  # CTAs that work side by side on different places; TMA hands the filters, which all of them need, to all at once
STAGES = {stages}  # tiles of the input and of the filters in shared memory: some arrive while one is multiplied
GROUPS, ROWS = {groups}, {rows}  # warpgroups that multiply, and how many places of a tile each computes; one more warpgroup loads
STORE_N = {store_n}  # channels that a warpgroup stores at a time
ELEMENT = cutlass.{element}  # what wgmma multiplies; it accumulates in float32
STORED, DTYPE = cutlass.{stored}, torch.{dtype}  # what memory holds{rounded}

{operation_class}{functions}
'''
DIVIDE = '''\
@cute.jit
def divide(a: cutlass.Int32, b: cutlass.Int32):
    """Quotient and remainder of numbers that are not negative."""
    quotient = (cutlass.Uint32(a) // cutlass.Uint32(b)).to(cutlass.Int32)
    return quotient, a - quotient * b


@cute.jit
def place(work: cutlass.Int32, columns: cutlass.Int32, phases: cutlass.Int32, rows: cutlass.Int32):
    """(m in clusters, n, phase, part) of a piece of work; the phases are turned, so that no CTA meets one of them more often than the others."""
    rest, n = divide(work, columns)
    line, turn = divide(rest, phases)
    _, phase = divide(turn + line, phases)
    part, m = divide(line, rows)
    return m, n, phase, part


'''
LOOP = '''\
@cute.kernel
def conv_kernel(
    tma_a: cute.CopyAtom, a: cute.Tensor, tma_b: cute.CopyAtom, b: cute.Tensor, taps: cute.Tensor, phases: cute.Tensor, {parameter}d: cute.Tensor, grid: Any, scale: Any, sizes: Any,
    tiled_mma: cute.TiledMma, layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout,
):
    """Persistent CTAs: one warp loads tiles through TMA, also ahead of the tile at hand; {about}.

    A tile of a for one tap of the filter is the tile of the result's places, shifted by a number of rows that is the tap's own.
    """
    thread, _, _ = cute.arch.thread_idx()
    in_m, _, cluster = cute.arch.block_idx()
    _, _, clusters = cute.arch.grid_dim()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp_index == 0:
        cpasync.prefetch_descriptor(tma_a)
        cpasync.prefetch_descriptor(tma_b)
    memory = cutlass.memory.SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, STAGES * 2){order}
    shared_a = memory.allocate_tensor(ELEMENT, layout_a.outer, 1024, swizzle=layout_a.inner)
    shared_b = memory.allocate_tensor(ELEMENT, layout_b.outer, 1024, swizzle=layout_b.inner)
    # results by channel; rows are padded by 16 bytes, so that the threads of a fragment fall into different banks
    staged = memory.allocate_tensor(cutlass.Float32, cute.make_layout((STORE_N, ROWS, GROUPS), stride=(ROWS + 4, 1, STORE_N * (ROWS + 4))), 16)
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # each warp that multiplies tells every CTA that sent it something
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, {arrivals} * CLUSTER),
        tx_count=(TILE_M + TILE_N) * TILE_K * ELEMENT.width // 8,
        cta_layout_vmnk=cute.make_layout((1, CLUSTER, 1, 1)),
    )
    depth, filters, parts = sizes
    images, grid0, grid1, grid2 = grid
    rows = (images * grid0 * grid1 * grid2 + TILE_M * CLUSTER - 1) // (TILE_M * CLUSTER)
    columns = (filters + TILE_N - 1) // TILE_N
    works = rows * columns * phases.shape[0] * parts
    if warp_index < 4:{give_registers}
        if warp_index == 0:
            to_b = cutlass.Int16((1 << CLUSTER) - 1)
            writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for work in cutlass.range(cluster, works, clusters, unroll=1):
                tile_m, tile_n, phase, part = place(work, columns, phases.shape[0], rows)
                m0 = (tile_m * CLUSTER + in_m) * TILE_M
                n0 = part * filters + tile_n * TILE_N
                first, count = phases[phase, 0], phases[phase, 1]
{load}
            pipe.producer_tail(writing)
    else:{take_registers}
        group = warp_index // 4 - 1
        lane = thread % 128
        own_a = {own_a}
        mine = tiled_mma.get_slice(0)
        part_a = tiled_mma.make_fragment_A(mine.partition_A(own_a))
        part_b = tiled_mma.make_fragment_B(mine.partition_B(shared_b))
        totals = cute.make_rmem_tensor(tiled_mma.partition_shape_C((ROWS, TILE_N)), cutlass.Float32)
        where = tiled_mma.get_slice(lane).partition_C(cute.make_identity_tensor((ROWS, TILE_N)))
        places = cute.make_rmem_tensor(ROWS // 32, cutlass.Int64)  # addresses in the first channel of d of the results that this thread stores; -1: none
        values = cute.make_rmem_tensor(ROWS // 32, cutlass.Float32){made}
        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        releasing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        each = depth // TILE_K  # stages of a tap{skip_start}
        for work in cutlass.range({first}, works, {stride}, unroll=1):
            tile_m, tile_n, phase, part = place(work, columns, phases.shape[0], rows)
            steps = phases[phase, 1] * each{wait_turn}
            pipe.consumer_wait(reading)
            warpgroup.fence()
            tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
            for k in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                cute.gemm(tiled_mma, totals, part_a[None, None, k, reading.index], part_b[None, None, k, reading.index], totals)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            reading.advance()
            for _step in cutlass.range(1, steps, unroll=1):
                pipe.consumer_wait(reading)
                for k in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    cute.gemm(tiled_mma, totals, part_a[None, None, k, reading.index], part_b[None, None, k, reading.index], totals)
                warpgroup.commit_group()
                warpgroup.wait_group(1)  # the multiplication before this one is done: its stage can be filled again
                pipe.consumer_release(releasing)
                reading.advance()
                releasing.advance(){pass_turn}
'''
LOAD = '''\
for tap in cutlass.range(first, first + count, unroll=1):
    row = m0 + taps[tap, 0]
    for channel in cutlass.range({begin}, {end}, TILE_K, unroll=1):
        tile_a = cute.local_tile(cute.domain_offset((row, part * depth + channel), a), (TILE_M, TILE_K), (0, 0))
        tile_b = cute.local_tile(cute.domain_offset((n0, tap * depth + channel), b), (TILE_N, TILE_K), (0, 0))
        into_a, from_a = cpasync.tma_partition(tma_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 2), cute.group_modes(tile_a, 0, 2))
        into_b, from_b = cpasync.tma_partition(tma_b, in_m, cute.make_layout(CLUSTER), cute.group_modes(shared_b, 0, 2), cute.group_modes(tile_b, 0, 2))
        pipe.producer_acquire(writing)
        arrived = pipe.producer_get_barrier(writing)
        cute.copy(tma_a, from_a, into_a[None, writing.index], tma_bar_ptr=arrived)
        cute.copy(tma_b, from_b, into_b[None, writing.index], tma_bar_ptr=arrived{send_b})
        pipe.producer_commit(writing)
        writing.advance()
'''
PLACES = '''\
            # where the results go, while the last multiplication runs
            m0 = {m0}{shift}
            n0 = tile_n * TILE_N
            for q in cutlass.range_constexpr(ROWS // 32):
                line, t2 = divide(m0 + lane % 32 + 32 * q, grid2)
                slab, t1 = divide(line, grid1)
                image, t0 = divide(slab, grid0)
                o0, o1, o2 = t0 * scale[0] + phases[phase, 2], t1 * scale[1] + phases[phase, 3], t2 * scale[2] + phases[phase, 4]
                inside = (image < images) & (o0 >= 0) & (o0 < d.shape[2]) & (o1 >= 0) & (o1 < d.shape[3]) & (o2 >= 0) & (o2 < d.shape[4])
                offset = cutlass.Int64(image) * d.stride[0] + (o0 * d.shape[3] + o1) * d.shape[4] + o2
                places[q] = cutlass.select_(inside, d.iterator.toint() + offset * (d.element_type.width // 8), cutlass.Int64(-1))
'''
MULTIPLIED = '''\
            warpgroup.wait_group(0)
            pipe.consumer_release(releasing)
            releasing.advance(){skip_other}
'''
STORE = '''\
            channel = part * filters + n0 + warp_index % 4
            row, rows_on = (cutlass.Int64(count) * d.stride[1] * (d.element_type.width // 8) for count in (channel, 4))  # bytes
            for j in cutlass.range_constexpr(TILE_N // STORE_N):
                # STORE_N channels at a time: registers, shared memory, and out along the places
                cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
                for e in cutlass.range_constexpr(ROWS * STORE_N // 128):
                    at = {fragment}
                    staged[where[at][1] - j * STORE_N, where[at][0], group] = totals[at]
                cute.arch.barrier(barrier_id=1 + group, number_of_threads=128)
                for step in cutlass.range_constexpr(STORE_N // 4):
                    for q in cutlass.range_constexpr(ROWS // 32):
                        values[q] = staged[step * 4 + warp_index % 4, lane % 32 + 32 * q, group]
                    if channel < (part + 1) * filters:
{reads}                        for q in cutlass.range_constexpr(ROWS // 32):
                            total = values[q]
{epilogue}
                            if places[q] >= 0:
                                result = cute.make_tensor(cute.make_ptr(d.element_type, places[q] + row, cute.AddressSpace.gmem), cute.make_layout(1))
                                result[0] = total.to(d.element_type)
                    channel += 4
                    row += rows_on
'''
LAUNCH = '''\


@cute.jit
def conv(
    a: cute.Tensor, b: cute.Tensor, taps: cute.Tensor, phases: cute.Tensor, {parameter}d: cute.Tensor, grid: Any, scale: Any, sizes: Any, stream: cuda.CUstream, resident: cutlass.Constexpr
):
    """a (places, channels), b (filters, taps * channels), d (images, filters, three extents); `resident` clusters run at once."""
{recast}    tile = (TILE_M, TILE_N, TILE_K)
    major_a, major_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    tiled_mma = {tiled_mma}
    layout_a, layout_b = sm90.make_smem_layout_a(major_a, tile, ELEMENT, STAGES), sm90.make_smem_layout_b(major_b, tile, ELEMENT, STAGES)
    tma_a, view_a = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), a, cute.slice_(layout_a, (None, None, 0)), (TILE_M, TILE_K))
    tma_b, view_b = cpasync.make_tiled_tma_atom({operation_b}, b, cute.slice_(layout_b, (None, None, 0)), (TILE_N, TILE_K), num_multicast=CLUSTER)
    images, grid0, grid1, grid2 = grid
    _, filters, parts = sizes
    works = ((images * grid0 * grid1 * grid2 + TILE_M * CLUSTER - 1) // (TILE_M * CLUSTER)) * ((filters + TILE_N - 1) // TILE_N) * phases.shape[0] * parts
    conv_kernel(tma_a, view_a, tma_b, view_b, taps, phases, {argument}d, grid, scale, sizes, tiled_mma, layout_a, layout_b).launch(
        grid=[CLUSTER, 1, cutlass.min(works, resident)], block=[128 + 128 * GROUPS, 1, 1], cluster=[CLUSTER, 1, 1], stream=stream
    )
'''
KERNEL = f"{CONSTANTS}{DIVIDE}{LOOP}{PLACES}{MULTIPLIED}{STORE}{LAUNCH}"
