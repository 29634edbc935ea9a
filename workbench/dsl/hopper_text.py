"""The text that `hopper` fills in: the kernel and its launch function. Operands are in `hopper_operands`, what happens to a finished tile is in `hopper_store`."""

from __future__ import annotations

KERNEL = '''
TILE_M, TILE_N, TILE_K = {tm}, {tn}, {tk}  # what one tile of d covers, and how much of k one stage holds
CLUSTER_M, CLUSTER_N = {cm}, {cn}  # CTAs that work side by side; TMA hands a tile that several of them need to all of them at once
STAGES = {stages}  # tiles of a and of b in shared memory: some arrive while one is multiplied
GROUPS, ROWS = {groups}, {rows}  # warpgroups that multiply, and how many rows of a tile each computes; one more warpgroup loads
BAND = {band}  # {raster} that are walked together, so that their operands stay in L2
{splits}{store_constants}ELEMENT = cutlass.{element}  # what wgmma multiplies; it accumulates in float32
STORED, DTYPE = cutlass.{stored}, torch.{dtype}  # what memory holds{rounded}

{operation_class}{functions}
{place}{share}
@cute.kernel
def gemm_kernel(
    tma_a: cute.CopyAtom, a: cute.Tensor, tma_b: cute.CopyAtom, b: cute.Tensor, {parameter}{kernel_target},
    tiled_mma: cute.TiledMma, layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout, {kernel_constants}
):
    """{walk} one warp loads tiles through TMA{ahead}; {about}."""
    thread, _, _ = cute.arch.thread_idx()
    {blocks} = cute.arch.block_idx()
    _, _, clusters = cute.arch.grid_dim()
    warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp_index == 0:
        cpasync.prefetch_descriptor(tma_a)
        cpasync.prefetch_descriptor(tma_b)
    memory = cutlass.memory.SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, STAGES * 2){order}
    shared_a = memory.allocate_tensor(ELEMENT, layout_a.outer, 1024, swizzle=layout_a.inner)
    shared_b = memory.allocate_tensor(ELEMENT, layout_b.outer, 1024, swizzle=layout_b.inner)
{shared_target}    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        # each warp that multiplies tells every CTA that sent it something
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, {arrivals} * (CLUSTER_M + CLUSTER_N - 1)),
        tx_count=(TILE_M + TILE_N) * TILE_K * ELEMENT.width // 8,
        cta_layout_vmnk=cute.make_layout((1, CLUSTER_M, CLUSTER_N, {cluster_k})),
    )
{early}    m, n, batches = {extents}
{works}    tiles_a = cute.local_tile(a, (TILE_M, TILE_K), (None, None, None))
    tiles_b = cute.local_tile(b, (TILE_N, TILE_K), (None, None, None))
    steps = cute.size(tiles_a, mode=[3])
{shares}    if warp_index < 4:{give_registers}
        if warp_index == 0:
            # the CTAs along n need the same tile of a, those along m the same tile of b: each loads a part and sends it to all
            into_a, from_a = cpasync.tma_partition(tma_a, in_n, cute.make_layout(CLUSTER_N), cute.group_modes(shared_a, 0, 2), cute.group_modes(tiles_a, 0, 2))
            into_b, from_b = cpasync.tma_partition(tma_b, in_m, cute.make_layout(CLUSTER_M), cute.group_modes(shared_b, 0, 2), cute.group_modes(tiles_b, 0, 2))
            to_a = cutlass.Int16(sum(1 << (i * CLUSTER_M) for i in range(CLUSTER_N))) << cutlass.Int16(in_m)
            to_b = cutlass.Int16((1 << CLUSTER_M) - 1) << cutlass.Int16(in_n * CLUSTER_M)
            writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
{start_loaded}            for {item} in cutlass.range({range_loaded}, unroll=1):
{find_loaded}
                for step in cutlass.range({loaded}, unroll=1):
                    pipe.producer_acquire(writing)
                    arrived = pipe.producer_get_barrier(writing)
                    cute.copy(tma_a, {from_a}[None, tile_m, step, {batch_a}], into_a[None, writing.index], tma_bar_ptr=arrived{send_a})
                    cute.copy(tma_b, from_b[None, tile_n, step, {batch_b}], into_b[None, writing.index], tma_bar_ptr=arrived{send_b})
                    pipe.producer_commit(writing)
                    writing.advance()
            pipe.producer_tail(writing)
    else:{take_registers}
        group = warp_index // 4 - 1
        lane = thread % 128
        own_a = {own_a}
        mine = tiled_mma.get_slice(0)
{fragment_a}        part_b = tiled_mma.make_fragment_B(mine.partition_B(shared_b))
        totals = cute.make_rmem_tensor(tiled_mma.partition_shape_C((ROWS, TILE_N)), cutlass.Float32)
        where = tiled_mma.get_slice(lane).partition_C(cute.make_identity_tensor((ROWS, TILE_N)))
        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        releasing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES){skip_start}
{store_setup}{start_multiplied}        for {item} in cutlass.range({range_multiplied}, unroll=1):
{find_multiplied}{fetch_first}{wait_turn}
{multiply}{store}

@cute.jit
def gemm(a: cute.Tensor, b: cute.Tensor, {parameter}{launch_target}stream: cuda.CUstream{launch_constants}):
    """{launch_about}"""
    {views} = (cute.make_tensor(t.iterator, cute.select(t.layout, mode=[1, 2, 0])) for t in ({views}))
{recast}    tile = (TILE_M, TILE_N, TILE_K)
    major_a, major_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    tiled_mma = {tiled_mma}
    layout_a, layout_b = sm90.make_smem_layout_a(major_a, tile, ELEMENT, STAGES), sm90.make_smem_layout_b(major_b, tile, ELEMENT, STAGES)
{layout_target}    tma_a, view_a = cpasync.make_tiled_tma_atom({operation_a}, a, cute.slice_(layout_a, (None, None, 0)), (TILE_M, TILE_K), num_multicast=CLUSTER_N)
    tma_b, view_b = cpasync.make_tiled_tma_atom({operation_b}, b, cute.slice_(layout_b, (None, None, 0)), (TILE_N, TILE_K), num_multicast=CLUSTER_M)
{launch_setup}    works = {most_works}
    gemm_kernel(tma_a, view_a, tma_b, view_b, {argument}{launch_arguments}).launch(
        grid={grid}, block=[128 + 128 * GROUPS, 1, 1], cluster={cluster}, stream=stream{pdl}
    )


{combine}{operands}{resident}'''
RESIDENT = '''
@functools.cache
def resident():
    """How many clusters the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(CLUSTER_M * CLUSTER_N)
'''
EARLY = """\
    # this kernel started while the one before it ended: what that one wrote can be read from here on; the next one may start
    cute.arch.griddepcontrol_wait()
    cute.arch.griddepcontrol_launch_dependents()
"""
SHARE = '''
@cute.jit
def share(split: cutlass.Int32, steps: cutlass.Int32):
    """(first, count) of the steps of k that belong to this piece of work; at least one, past the end if there are none left, where TMA reads zeros."""
    first, last = split * steps // SPLITS, (split + 1) * steps // SPLITS
    if first == last:
        first = steps
    return first, cutlass.max(last - first, 1)

'''
PLACE = '''\
@cute.jit
def place(work: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32):
    """(m, n, batch) of a piece of work, in clusters."""
    batch = work // (rows * columns)
    inside = work % (rows * columns)
    first = inside // (BAND * {inner}) * BAND
    within = inside % (BAND * {inner})
    high = cutlass.min({outer} - first, BAND)
    m, n = {found}
    return m, n, batch

'''
WORKS = """\
    rows = (m + TILE_M * CLUSTER_M - 1) // (TILE_M * CLUSTER_M)
    columns = (n + TILE_N * CLUSTER_N - 1) // (TILE_N * CLUSTER_N)
    works = rows * columns * batches
"""
MOST_WORKS = "((m + TILE_M * CLUSTER_M - 1) // (TILE_M * CLUSTER_M)) * ((n + TILE_N * CLUSTER_N - 1) // (TILE_N * CLUSTER_N)) * batches"
FIND_LOADED = """\
                tile_m, tile_n, batch = place(work, rows, columns)
                tile_m = tile_m * CLUSTER_M + in_m
                tile_n = tile_n * CLUSTER_N + in_n{share_loaded}"""
FIND_MULTIPLIED = """\
            tile_m, tile_n, batch = place(work, rows, columns)
            m0 = (tile_m * CLUSTER_M + in_m) * TILE_M{shift}
            n0 = (tile_n * CLUSTER_N + in_n) * TILE_N{share_multiplied}"""
FRAGMENT_A = """\
        part_a = tiled_mma.make_fragment_A(mine.partition_A(own_a))
"""
MULTIPLY = """\
            pipe.consumer_wait(reading)
            warpgroup.fence()
            tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
            for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                cute.gemm(tiled_mma, totals, part_a[None, None, part, reading.index], part_b[None, None, part, reading.index], totals)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            reading.advance()
            for _step in cutlass.range(1, {multiplied}, unroll=1):
                pipe.consumer_wait(reading)
                for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    cute.gemm(tiled_mma, totals, part_a[None, None, part, reading.index], part_b[None, None, part, reading.index], totals)
                warpgroup.commit_group()
                warpgroup.wait_group(1)  # the multiplication before this one is done: its stage can be filled again
                pipe.consumer_release(releasing)
                reading.advance()
                releasing.advance(){pass_turn}
            warpgroup.wait_group(0)
            pipe.consumer_release(releasing)
            releasing.advance(){skip_other}
"""
# with wgmma's first operand in registers it may lie in either way in shared memory
FRAGMENT_A_REGISTERS = """\
        source_a = tiled_mma.get_slice(lane).partition_A(own_a)
        part_a = tiled_mma.make_fragment_A(source_a[None, None, None, 0].shape)
"""
MULTIPLY_REGISTERS = """\
            totals.fill(0.0)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            for _step in cutlass.range({multiplied}, unroll=1):
                pipe.consumer_wait(reading)
                for e in cutlass.range_constexpr(cute.size(part_a)):
                    part_a[e] = source_a[None, None, None, reading.index][e]
                warpgroup.fence()
                for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    cute.gemm(tiled_mma, totals, part_a[None, None, part], part_b[None, None, part, reading.index], totals)
                warpgroup.commit_group()
                warpgroup.wait_group(0)  # the other warpgroup multiplies while this one waits and reads
                pipe.consumer_release(reading)
                reading.advance()
"""
