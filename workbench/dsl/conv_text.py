"""The text of convolutions on Hopper, which `conv_hopper` fills in: kernels and launch functions."""

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
                for tap in cutlass.range(first, first + count, unroll=1):
                    row = m0 + taps[tap, 0]
                    for channel in cutlass.range(0, depth, TILE_K, unroll=1):
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
PLACES = '''\
            # where the results go, while the last multiplication runs
            m0 = (tile_m * CLUSTER + in_m) * TILE_M{shift}
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
                    at = ((e % 2, e // 2 % 2, e // 4 % (STORE_N // 8) + j * (STORE_N // 8)), e // (STORE_N // 2), 0)
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
AROUND = '''\


@cute.kernel
def gather_kernel(
    x: cute.Tensor, target: cute.Tensor, starts: cute.Tensor, grid: Any, steps: Any, spread: cutlass.Int32, sizes: Any, wide: cutlass.Constexpr, across: cutlass.Constexpr, plain: cutlass.Constexpr,
    per: cutlass.Constexpr,
):
    """`across` places of a line of the grid, `wide` channels of each: read along the line, written along the channels."""
    thread, _, _ = cute.arch.thread_idx()
    segment, first1, first_slab = cute.arch.block_idx()
    _, grid_y, grid_z = cute.arch.grid_dim()
    width = 128 // STORED.width  # elements of 16 bytes
    lines = 256 // across  # channels that are read at once
    memory = cutlass.memory.SmemAllocator()
    tile = memory.allocate_tensor(STORED, cute.make_layout((wide, across), stride=(across + 1, 1)), 16)
    images, grid0, grid1, grid2 = grid
    step0, step1, step2 = steps
    channels, depth, parts = sizes  # of the input in one part, and of target in one part; how many parts there are
    pieces = depth * parts // wide
    values = cute.make_rmem_tensor(wide // lines, STORED)
    vector = cute.make_rmem_tensor(width, STORED)
    t2 = segment * across + thread % across
    for slab in cutlass.range(first_slab, images * grid0 * starts.shape[0] * pieces, grid_z, unroll=1):
        rest, piece = divide(slab, pieces)
        plane, line0 = divide(rest, images * grid0)
        image, t0 = divide(line0, grid0)
        i0 = t0 * step0 + starts[plane, 0]
        i2 = t2 * step2 + starts[plane, 2]
        own = piece * wide + thread // across
        for t1 in cutlass.range(first1, grid1, grid_y, unroll=1):
            i1 = t1 * step1 + starts[plane, 1]
            line = (i0 >= 0) & (i0 < x.shape[2]) & (i1 >= 0) & (i1 < x.shape[3])
            at = cutlass.Int64(image) * x.stride[0] + cutlass.Int64(i0) * x.stride[2] + cutlass.Int64(i1) * x.stride[3] + cutlass.Int64(i2) * x.stride[4]
            if cutlass.const_expr(plain):
                line = line & (i2 >= 0) & (i2 < x.shape[4])
                at += cutlass.Int64(own) * x.stride[1]
            for step in cutlass.range_constexpr(wide // lines):
                value = STORED(0.0)
                if cutlass.const_expr(plain):
                    if line & (own + step * lines < channels):
                        value = cute.make_tensor(x.iterator + at, cute.make_layout(1))[0]
                    at += lines * x.stride[1]
                else:
{channel_tap}
                    there = i2 + tap * spread
                    if line & (inner < channels) & (there >= 0) & (there < x.shape[4]):
                        value = cute.make_tensor(x.iterator + (at + cutlass.Int64(channel) * x.stride[1] + tap * spread * x.stride[4]), cute.make_layout(1))[0]
                values[step] = value
            for step in cutlass.range_constexpr(wide // lines):
                tile[step * lines + thread // across, thread % across] = values[step]
            cute.arch.sync_threads()
            row = ((plane * images + image) * grid0 + t0) * grid1 + t1
            into = (cutlass.Int64(row) * grid2 + segment * across) * target.shape[1] + piece * wide
            for step in cutlass.range_constexpr((across * (wide // width) + 255) // 256):
                place, chunk = (thread + 256 * step) // (wide // width), (thread + 256 * step) % (wide // width)
                if (place < across) & (segment * across + place < grid2):
                    for e in cutlass.range_constexpr(width):
                        vector[e] = tile[chunk * width + e, place]
                    offset = into + place * target.shape[1] + chunk * width
                    cute.autovec_copy(vector, cute.make_tensor(target.iterator + cute.assume(offset, divby=width), cute.make_layout(width)))
            cute.arch.sync_threads()


@cute.jit
def gather(
    x: cute.Tensor, target: cute.Tensor, starts: cute.Tensor, grid: Any, steps: Any, spread: cutlass.Int32, sizes: Any, stream: cuda.CUstream,
    wide: cutlass.Constexpr, across: cutlass.Constexpr, plain: cutlass.Constexpr, per: cutlass.Constexpr,
):
    """x (images, channels, three extents), any strides -> target (places, channels): zeros where there is no input."""
    images, grid0, grid1, grid2 = grid
    slabs = images * grid0 * starts.shape[0] * (target.shape[1] // wide)
    gather_kernel(x, target, starts, grid, steps, spread, sizes, wide, across, plain, per).launch(
        grid=[(grid2 + across - 1) // across, cutlass.min(grid1, 65535), cutlass.min(slabs, 65535)], block=[256, 1, 1], stream=stream
    )


@cute.kernel
def arrange_kernel(w: cute.Tensor, target: cute.Tensor, taps: cute.Tensor, sizes: Any):
    """One element of the filters a thread: target[filter, tap * depth + channel], zero where the channel is no input of the filter."""
    thread, _, _ = cute.arch.thread_idx()
    block, filter, _ = cute.arch.block_idx()
    column = block * 128 + thread
    depth, channels, filters = sizes  # of one part
    if column < target.shape[1]:
        tap, inner = divide(column, depth)
        source = taps[tap, 1]
        value = STORED(0.0)
        if (source >= 0) & (inner < channels):
            part, _ = divide(filter, filters)
{pick}
        target[filter, column] = value


@cute.jit
def arrange(w: cute.Tensor, target: cute.Tensor, taps: cute.Tensor, sizes: Any, stream: cuda.CUstream):
    """w as torch has it, its places as one extent -> target (filters, taps * channels), as the kernel reads it."""
    arrange_kernel(w, target, taps, sizes).launch(grid=[(target.shape[1] + 127) // 128, target.shape[0], 1], block=[128, 1, 1], stream=stream)


def numbers(*values):
    """Integers that a kernel may be called with again, when others take their place."""
    return tuple(cutlass.Int32(value) for value in values)


{geometry}


@functools.cache
def resident():
    """How many clusters the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(CLUSTER)


{convolve}
'''
KERNEL = f"{CONSTANTS}{DIVIDE}{LOOP}{PLACES}{MULTIPLIED}{STORE}{LAUNCH}{AROUND}"
GEOMETRY = '''
def three(values, space, fill):
    """A setting of each of the last `space` dimensions, as of three."""
    values = (values,) * space if isinstance(values, int) else values
    if len(values) != space:
        raise TypeError(f"a setting of {{len(values)}} dimensions, {{values}}, for an input of {{space}}")
    return (fill,) * (3 - space) + tuple(values)


{along}


def smallest(width, height, groups):
    """Into how many parts the groups of channels are taken, so that the tiles of (channels, filters) that are multiplied are smallest; other groups' filters are zeros there."""
    divisors = [parts for parts in range(1, groups + 1) if groups % parts == 0]
    return min(divisors, key=lambda parts: parts * (-(-width // parts // TILE_K) * -(-height // parts // TILE_N)))


@functools.cache
def geometry(size, shape, device):
    """What the kernels need to know about an input of this size and filters of this shape.

    The input is copied onto a grid (images, three extents), channels last, with its zeros around it: each place of the result and each tap of the filter then have an input at the
    same distance. {planes}
    """
    space = len(size) - 2
    stride, padding, dilation{more_names} = {settings}
    extents, taps = (1,) * (3 - space) + size[2:], (1,) * (3 - space) + shape[2:]
    {channels}
    unfold = {unfold}
    found = [along(*each) for each in zip(extents, taps, stride, padding, dilation{more_zip})]
    spread, inputs = 0, channels
    if unfold:
        found[2] = (found[2][0], found[2][0], stride[2], [-padding[2]], [(0, [(0, 0, 0)])], 1)
        spread, inputs = dilation[2], channels * taps[2]
    out, grid, steps, starts, phases, scale = zip(*found)
    if min(out) < 1:
        raise ValueError(f"filters of {{shape[2:]}} do not fit into an input of {{size[2:]}}")
    places = size[0] * grid[0] * grid[1] * grid[2]
    planes = list(itertools.product(*starts))
    rows, table = [], []
    for one in itertools.product(*phases):
        first = len(rows)
        for (r0, p0, s0), (r1, p1, s1), (r2, p2, s2) in itertools.product(*(taps_of for _, taps_of in one)):
            plane = (p0 * len(starts[1]) + p1) * len(starts[2]) + p2
            rows.append((plane * places + (s0 * grid[1] + s1) * grid[2] + s2, (r0 * taps[1] + r1) * taps[2] + r2))
        if len(rows) == first:
            rows.append((len(planes) * places, -1))  # no tap reaches these places: one that reads zeros, outside of the input
        table.append((first, len(rows) - first, *(offset for offset, _ in one)))
    parts = smallest(inputs, filters, CHANNEL_GROUPS)
    depth = -(-inputs // parts // TILE_K) * TILE_K
    tables = [torch.tensor(rows_of, dtype=torch.int32).to(device) for rows_of in (rows, table, planes)]
    return types.SimpleNamespace(
        out=(size[0], filters, *out), places=places * len(planes), line=grid[2], width=parts * depth, plain=parts == 1 and not unfold, per=channels if unfold else 0, columns=len(rows) * depth,
        tables=tables, grid=numbers(size[0], *grid), steps=numbers(*steps), scale=numbers(*scale),
        spread=cutlass.Int32(spread), gathered=numbers(inputs // parts, depth, parts), arranged=numbers(depth, inputs // parts, filters // parts), product=numbers(depth, filters // parts, parts),
    )
'''
ALONG_CONV = '''
def along(size, taps, stride, padding, dilation):
    """One dimension: (results, extent of the grid, input steps of the grid, first input of each plane, (offset, taps as (tap, plane, shift)) of each phase, scale of a place)."""
    results = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    rests = sorted({tap * dilation % stride for tap in range(taps)})  # planes: inputs that are a stride apart
    reached = [(tap, rests.index(tap * dilation % stride), tap * dilation // stride) for tap in range(taps)]
    return results, results + (taps - 1) * dilation // stride, stride, [rest - padding for rest in rests], [(0, reached)], 1
'''
ALONG_TRANSPOSED = '''
def along(size, taps, stride, padding, dilation, more):
    """One dimension: (results, extent of the grid, input steps of the grid, first input of each plane, (offset, taps as (tap, plane, shift)) of each phase, scale of a place)."""
    results = (size - 1) * stride - 2 * padding + dilation * (taps - 1) + more + 1
    reach = (taps - 1) * dilation // stride
    low, high = padding // stride, (results - 1 + padding) // stride
    phases = [
        (stride * low - padding + phase, [(tap, 0, reach - tap * dilation // stride) for tap in range(taps) if tap * dilation % stride == phase])
        for phase in range(stride)
    ]  # results that are a stride apart are reached by the same taps
    return results, high - low + 1 + reach, 1, [low - reach], phases, stride
'''
CONVOLVE = '''
def convolve(x, w{parameters}):
    """x (images, channels, 1 to 3 extents), w as torch has it -> the convolution, as torch gives it."""
    if x.dtype != DTYPE or w.dtype != DTYPE:
        raise TypeError(f"this kernel multiplies {{DTYPE}}, not {{x.dtype}} by {{w.dtype}}")
    expect_axes("x", x, 3, 5)
    expect_axes("w", w, x.dim(), x.dim())
    one = geometry(tuple(x.shape), tuple(w.shape), x.device)
{expected}    d = torch.empty(one.out, dtype={dtype}, device=x.device)
    result = d.reshape(*one.out[:2], *one.out[7 - x.dim():])
    if d.numel() == 0:
        return result
    taps, phases, starts = (from_dlpack(table).mark_layout_dynamic(leading_dim=1) for table in one.tables)
    source = x.detach().unflatten(2, (1,) * (5 - x.dim()) + (x.shape[2],))
    unit = next((i for i in (4, 3, 2, 1, 0) if source.stride(i) == 1), None)
    wide = next(width for width in (1024 // STORED.width, TILE_K) if one.width % width == 0)
    across = 128 if one.line > 64 else 64  # places of one CTA
    gathered = torch.empty(one.places, one.width, dtype=x.dtype, device=x.device)
    left = from_dlpack(gathered, assumed_align=16).mark_layout_dynamic(leading_dim=1)
    constants = (wide, across, one.plain, one.per)
    call(gather, (x.dtype, unit, constants), (
        from_dlpack(source).mark_layout_dynamic(**({{}} if unit is None else {{"leading_dim": unit}})), left, starts, one.grid, one.steps, one.spread, one.gathered,
    ), constants)
    filters = torch.empty(one.out[1], one.columns, dtype=x.dtype, device=x.device)
    right = from_dlpack(filters, assumed_align=16).mark_layout_dynamic(leading_dim=1)
    call(arrange, (x.dtype,), (from_dlpack(w.detach().flatten(2).contiguous()).mark_layout_dynamic(leading_dim=2), right, taps, one.arranged))
    call(conv, (x.dtype, {keys}), (left, right, taps, phases, {views}from_dlpack(d).mark_layout_dynamic(leading_dim=4), one.grid, one.scale, one.product), (resident(),))
    return result
'''
