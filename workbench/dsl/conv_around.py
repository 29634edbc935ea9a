"""Text of convolutions on tensor cores beside the product itself: the copies that it reads, and the host's part. `conv_hopper` fills it in, for `conv_mma` too."""

from __future__ import annotations

AROUND = '''\


{split}@cute.kernel
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
{copied}            for step in cutlass.range_constexpr(wide // lines):
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
    cta, _, _ = cute.arch.block_idx()
    filter, block = divide(cta, (target.shape[1] + 127) // 128)  # along one axis of the grid: the others end at 65535
    column = block * 128 + thread
    depth, channels, filters = sizes  # of one part
    if column < target.shape[1]:
        tap, inner = divide(column, depth){which}
        source = taps[tap, 1]
        value = STORED(0.0)
        if (source >= 0) & ({inside}):
            part, _ = divide(filter, filters)
{pick}
        target[filter, column] = {arranged}


@cute.jit
def arrange(w: cute.Tensor, target: cute.Tensor, taps: cute.Tensor, sizes: Any, stream: cuda.CUstream):
    """w as torch has it, its places as one extent -> target (filters, taps * channels), as the kernel reads it."""
    arrange_kernel(w, target, taps, sizes).launch(grid=[((target.shape[1] + 127) // 128) * target.shape[0], 1, 1], block=[128, 1, 1], stream=stream)


def numbers(*values):
    """Integers that a kernel may be called with again, when others take their place."""
    return tuple(cutlass.Int32(value) for value in values)


{geometry}


'''
COPIED = '''\
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
'''
RESIDENT = '''\
@functools.cache
def resident():
    """How many clusters the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(CLUSTER)


'''
THREE = '''\
def three(values, space, fill):
    """A setting of each of the last `space` dimensions, as of three."""
    values = (values,) * space if isinstance(values, int) else values
    if len(values) != space:
        raise TypeError(f"a setting of {{len(values)}} dimensions, {{values}}, for an input of {{space}}")
    return (fill,) * (3 - space) + tuple(values)


'''
GEOMETRY = THREE + '''\
{along}


def smallest(width, height, groups):
    """Into how many parts the groups of channels are taken, so that the tiles of (channels, filters) that are multiplied are smallest; other groups' filters are zeros there."""
    divisors = [parts for parts in range(1, groups + 1) if groups % parts == 0]
    return min(divisors, key=lambda parts: parts * (-(-width // parts // TILE_K) * -(-height // parts // TILE_N)))


@functools.cache
def geometry(size, shape, device):
    """What the kernels need to know about an input of this size and filters of this shape.

    The input is copied onto a grid (images, three extents), channels last, with its zeros around it: each place of the result and each tap of the filter then have an input at the
    same distance. {planes}{in_parts}
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
    parts = smallest({thrice}inputs, filters, CHANNEL_GROUPS)
    depth = -(-{thrice}inputs // parts // TILE_K) * TILE_K
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
    if x.shape[1] == 0:
        raise ValueError(f"x has the shape {{tuple(x.shape)}}; this kernel wants a channel or more")
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
    call(conv, (x.dtype, {keys}), (left, right, taps, phases, {views}from_dlpack(d).mark_layout_dynamic(leading_dim=4), one.grid, one.scale, one.product){constants})
    return result
'''
