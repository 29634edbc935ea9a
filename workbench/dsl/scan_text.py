"""Text of scans: a tile of a row in registers, rows by one CTA each or by look-back over many, columns by one thread each."""

from __future__ import annotations

TILE = '''
THREADS, PER_THREAD = {threads}, {per_thread}  # of a CTA; elements of a thread
WARPS, TILE = THREADS // 32, THREADS * PER_THREAD

{functions}
@cute.jit
def load({parameters}, kept: cute.Tensor, start, first, vectors, width: cutlass.Constexpr):
    """This thread's vectors of a tile, `first`, `first` + 32 and so on of the row; what lies beyond its end stays as it was."""
    for v in cutlass.range_constexpr(PER_THREAD // width):
        place = {place}
        if first + v * 32 < vectors:
{fragments}
            for e in cutlass.range_constexpr(width):
                kept[{element}, v] = {value}


@cute.jit
def scan_warp(kept: cute.Tensor, before: cute.Tensor, width: cutlass.Constexpr):
    """Scan each vector in place, and what comes before each within the warp's part of the tile into `before`; returns the part's total. Vector v of lane l is number v * 32 + l of the part."""
    lane = cute.arch.lane_idx()
    carry = cutlass.Float32({identity})
    for v in cutlass.range_constexpr(PER_THREAD // width):
        for e in cutlass.range_constexpr(1, width):
            kept[e, v] = {combine_in}
        running = kept[width - 1, v]
        for step in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(running, offset=1 << step)
            if lane >= 1 << step:
                running = {combine_running}
        earlier = cute.arch.shuffle_sync_up(running, offset=1)
        if lane == 0:
            earlier = cutlass.Float32({identity})
        before[v] = {combine_before}
        last = cute.arch.shuffle_sync(running, 31)
        carry = {combine_carry}
    return carry


@cute.jit
def store(y: cute.Tensor, kept: cute.Tensor, before: cute.Tensor, earlier, start, first, vectors, {store_parameter}width: cutlass.Constexpr):
    """What this thread's elements are with everything before them, to memory."""
    stored = cute.make_rmem_tensor(cute.make_layout(width), y.element_type)
    for v in cutlass.range_constexpr(PER_THREAD // width):
        place = {place}
        offset = {combine_offset}
{store}
'''
INCLUSIVE = """\
        if first + v * 32 < vectors:
            for e in cutlass.range_constexpr(width):
                value = kept[e, v]
                stored[{element}] = ({combined}).to(y.element_type)
            cute.autovec_copy(stored, cute.zipped_divide(y, (width,))[None, start + place])"""
EXCLUSIVE = """\
        if first + v * 32 < vectors:
            stored[{first_element}] = offset.to(y.element_type)  # without the element itself
            for e in cutlass.range_constexpr(width - 1):
                value = kept[e, v]
                stored[{next_element}] = ({combined}).to(y.element_type)
            cute.autovec_copy(stored, cute.zipped_divide(y, (width,))[None, start + place])"""
WITH_TOTAL = """\
        # a row of y has one element more than a row of x, so vectors of y start anywhere: through shared memory, so that neighbouring threads store neighbouring elements
        lane = cute.arch.lane_idx()
        scratch[0, lane] = offset
        for e in cutlass.range_constexpr(width - 1):
            value = kept[e, v]
            scratch[e + 1, lane] = {combined}
        cute.arch.sync_warp()
        for e in cutlass.range_constexpr(width):
            at = e * 32 + lane
            if first - lane + v * 32 + at // width < vectors:
                y[target + (first - lane + v * 32) * width + at] = scratch[at % width, at // width].to(y.element_type)
        cute.arch.sync_warp()
        value = kept[width - 1, v]
        if first + v * 32 == vectors - 1:
            y[target + vectors * width] = ({combined}).to(y.element_type)"""
TOGETHER = """\
    cute.arch.sync_threads()
    for w in cutlass.range_constexpr(WARPS):
        if w == warp:
            earlier = together
        total = totals[{which}w]
        together = {combine_together}"""
ROWS = '''

@cute.kernel
def scan_kernel({parameters}, y: cute.Tensor, columns: cutlass.Int32, width: cutlass.Constexpr):
    """One row per CTA, a tile at a time; the next tile is on its way while this one is scanned."""
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    warp, lane = thread // 32, thread % 32
    memory = cutlass.memory.SmemAllocator()
    totals = memory.allocate_tensor(cutlass.Float32, cute.make_layout((2, WARPS), stride=(WARPS, 1)), 16)
{scratch}    vectors = columns // width  # of a row
    start = cutlass.Int64(row) * vectors
{target}    first = warp * (32 * PER_THREAD // width) + lane
    ahead = cute.make_rmem_tensor(cute.make_layout((width, PER_THREAD // width)), cutlass.Float32)
    kept = cute.make_rmem_tensor(cute.make_layout((width, PER_THREAD // width)), cutlass.Float32)
    before = cute.make_rmem_tensor(PER_THREAD // width, cutlass.Float32)
    ahead.fill({identity})
    load({names}, ahead, start, first, vectors, width)
    together = cutlass.Float32({identity})
    for tile in range((vectors + TILE // width - 1) // (TILE // width)):
        kept.store(ahead.load())
        load({names}, ahead, start, first + TILE // width, vectors, width)
        total = scan_warp(kept, before, width)
        if lane == 0:
            totals[tile % 2, warp] = total
        earlier = cutlass.Float32({identity})
{together}
        store(y, kept, before, earlier, start, first, vectors, {store_argument}width)
        first += TILE // width


@cute.jit
def scan({parameters}, y: cute.Tensor, columns: cutlass.Int32, rows: cutlass.Int32, stream: cuda.CUstream, width: cutlass.Constexpr):
    scan_kernel({names}, y, columns, width).launch(grid=[rows, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
LOOKBACK = '''
TOTAL, PREFIX = 1, 2  # what a status holds: the tile's own total, or everything up to its end; 0 is nothing yet


@cute.jit
def publish(place, state: cutlass.Constexpr, value):
    """Store state (upper half) and value (lower half) as one word that the whole GPU sees: they cannot be torn apart, so no fence is needed."""
    cute.arch.store(place, cutlass.Int64(cutlass.Uint64(state << 32) | cutlass.Uint64(value.bitcast(cutlass.Uint32))), sem="relaxed", scope="gpu")


@cute.jit
def look_back(status: cute.Tensor, first, tile):
    """What the row's tiles before `tile` come to, whose statuses begin at `first`; one whole warp, 32 tiles at a time, until one has its whole prefix."""
    lane = cute.arch.lane_idx()
    found = cutlass.Float32({identity})
    last = tile - 1  # the nearest tile that is not in it yet
    looking = cutlass.Boolean(True)
    while looking:
        mine = last - lane
        word = cutlass.Int64(PREFIX << 32)  # before the row there is nothing, and it is complete
        if mine >= 0:
            word = cute.arch.load(status.iterator + (first + mine), cutlass.Int64, sem="relaxed", scope="gpu")
        while cute.arch.vote_any_sync(word < (TOTAL << 32)):
            if mine >= 0:
                word = cute.arch.load(status.iterator + (first + mine), cutlass.Int64, sem="relaxed", scope="gpu")
        complete = cute.arch.vote_ballot_sync(word >= (PREFIX << 32))
        value = cutlass.Uint32(word & 0xFFFFFFFF).bitcast(cutlass.Float32)
        if mine < 0:
            value = cutlass.Float32({identity})
        if complete != 0:
            nearest = cute.arch.popc((complete & -complete) - 1)  # lanes below the lowest set bit
            if lane > nearest:
                value = cutlass.Float32({identity})
        for step in cutlass.range_constexpr(5):
            other = cute.arch.shuffle_sync_bfly(value, offset=16 >> step)
            value = {combine_other}
        found = {combine_found}
        last -= 32
        looking = complete == 0
    return found


@cute.kernel
def scan_kernel({parameters}, y: cute.Tensor, status: cute.Tensor, ticket: cute.Tensor, columns: cutlass.Int32, tiles: cutlass.Int32, width: cutlass.Constexpr):
    """One tile per CTA, numbered in the order in which CTAs start, so that waiting for those before cannot deadlock; status and ticket hold zeros."""
    thread, _, _ = cute.arch.thread_idx()
    warp, lane = thread // 32, thread % 32
    memory = cutlass.memory.SmemAllocator()
    drawn = memory.allocate_tensor(cutlass.Int32, cute.make_layout(1), 16)
    totals = memory.allocate_tensor(cutlass.Float32, cute.make_layout(WARPS), 16)
    found = memory.allocate_tensor(cutlass.Float32, cute.make_layout(1), 16)
{scratch}    if thread == 0:
        drawn[0] = cute.arch.atomic_add(ticket.iterator, cutlass.Int32(1), sem="relaxed", scope="gpu")
    cute.arch.sync_threads()
    number = drawn[0]
    row = number // tiles
    tile = number - row * tiles
    vectors = columns // width  # of a row
    start = cutlass.Int64(row) * vectors
{target}    first = tile * (TILE // width) + warp * (32 * PER_THREAD // width) + lane
    kept = cute.make_rmem_tensor(cute.make_layout((width, PER_THREAD // width)), cutlass.Float32)
    before = cute.make_rmem_tensor(PER_THREAD // width, cutlass.Float32)
    kept.fill({identity})
    load({names}, kept, start, first, vectors, width)
    total = scan_warp(kept, before, width)
    if lane == 0:
        totals[warp] = total
    together = cutlass.Float32({identity})
    earlier = cutlass.Float32({identity})
{together}
    if warp == 0:
        value = cutlass.Float32({identity})
        place = status.iterator + number
        if tile > 0:
            if lane == 0:
                publish(place, TOTAL, together)
            value = look_back(status, row * tiles, tile)
        if lane == 0:
            publish(place, PREFIX, {combine_publish})
            found[0] = value
    cute.arch.sync_threads()
    value = found[0]
    earlier = {combine_earlier}
    store(y, kept, before, earlier, start, first, vectors, {store_argument}width)


@cute.jit
def scan({parameters}, y: cute.Tensor, status: cute.Tensor, ticket: cute.Tensor, columns: cutlass.Int32, tiles: cutlass.Int32, ctas: cutlass.Int32, stream: cuda.CUstream, width: cutlass.Constexpr):
    scan_kernel({names}, y, status, ticket, columns, tiles, width).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
COLUMNS = '''
AHEAD = 8  # elements that are loaded before the first of them is used

{functions}
@cute.kernel
def scan_kernel({parameters}, y: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32):
    """One column per thread: neighbouring threads read neighbouring columns."""
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    blocks = (columns + {threads} - 1) // {threads}
    block, batch = cta % blocks, cta // blocks  # along one axis of the grid: the others end at 65535
    column = block * {threads} + thread
    if column < columns:
        so_far = cutlass.Float32({identity})
        kept = cute.make_rmem_tensor(AHEAD, cutlass.Float32)
        kept.fill({identity})
        for start in range(0, rows, AHEAD):
            for i in cutlass.range_constexpr(AHEAD):
                if start + i < rows:
                    row = {row}
                    kept[i] = {value}
            for i in cutlass.range_constexpr(AHEAD):
                if start + i < rows:
                    row = {row}
{step}


@cute.jit
def scan({parameters}, y: cute.Tensor, batches: cutlass.Int32, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream):
    scan_kernel({names}, y, rows, columns).launch(grid=[((columns + {threads} - 1) // {threads}) * batches, 1, 1], block=[{threads}, 1, 1], stream=stream)
'''
