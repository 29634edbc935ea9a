"""conv(x, w) and convtranspose(x, w) .mma(...) without a schedule -> an implicit product by mma.sync, fed by cp.async: tensor cores from sm_80 on.

The input's copy, the filters' and the table of taps are those of `conv_hopper`: a tile of the input for one tap is the tile of the result's places, some rows further on, so that a tap
and TILE_K channels are one step of k of a multistage product as `pipelined` has it. Rows past the end are copies of the last one, since their results are dropped.
"""

from __future__ import annotations

from workbench.dsl import conv_hopper, epilogue, gemm, operation, pipelined
from workbench.dsl.conv_around import AROUND
from workbench.dsl.conv_text import DIVIDE, PLACES, STORE
from workbench.dsl.hopper_plan import BYTES, stage_bytes
from workbench.dsl.ir import Binding, Rejection, Stage, number, setting
from workbench.dsl.pieces import Parts

IMPORTS = "import functools\nimport itertools\nimport math\nimport types\nfrom typing import Any"
STORE_N = 32  # channels that are stored at a time: two fragments of each warp
STAGES = 3
TILES = tuple((m, n, k) for m in (64, 128) for n in (32, 64, 128) for k in (16, 32, 64))
SHARED_BYTES = operation.SHARED_BYTES["sm_80"]
CONSTANTS = '''
TILE_M, TILE_N, TILE_K = {tm}, {tn}, {tk}  # places and channels of the result that one CTA computes, and how many input channels one stage holds
STAGES = {stages}  # tiles of the input and of the filters in shared memory: one is multiplied while the others arrive
ROWS, STORE_N = TILE_M, {store_n}  # places and channels that are stored at a time
ELEMENT = STORED = cutlass.{stored}  # what memory holds
DTYPE = torch.{dtype}
THREADS = 128  # four warps, two along the places and two along the channels

{functions}
'''
KERNEL = '''\
def shared_layout(rows):
    """(rows, TILE_K, STAGES); the 16-byte pieces of neighbouring rows are swizzled into different banks."""
    length = min(TILE_K, 1024 // ELEMENT.width)
    piece = cute.make_composed_layout(cute.make_swizzle(min(3, int(math.log2(length * ELEMENT.width // 128))), int(math.log2(128 // ELEMENT.width)), 3), 0, cute.make_layout((8, length), stride=(length, 1)))
    return cute.tile_to_shape(piece, (rows, TILE_K, STAGES), (0, 1, 2))


def copies(rows):
    """Each thread copies 16 bytes along the channels."""
    vector = 128 // ELEMENT.width
    atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyG2SOp(cache_mode=cute.nvgpu.cpasync.LoadCacheMode.GLOBAL), ELEMENT, num_bits_per_copy=128)
    across = TILE_K // vector
    return cute.make_tiled_copy_tv(atom, cute.make_layout((THREADS // across, across), stride=(across, 1)), cute.make_layout((1, vector)))


@cute.jit
def fetch(copy: cute.TiledCopy, source: cute.Tensor, target: cute.Tensor, where: cute.Tensor, first: cutlass.Int32, column: cutlass.Int32, stage: cutlass.Int32):
    """Start copying TILE_K elements from `column` on of the rows from `first` on."""
    vector = 128 // ELEMENT.width
    for i in cutlass.range_constexpr(cute.size(target, mode=[1])):
        for j in cutlass.range_constexpr(cute.size(target, mode=[2])):
            row, inner = where[(0, 0), i, j]
            offset = cutlass.Int64(cutlass.min(first + row, source.shape[0] - 1)) * source.shape[1] + column + inner
            piece = cute.make_tensor(source.iterator + cute.assume(offset, divby=vector), cute.make_layout(((vector, 1),), stride=((1, 0),)))
            cute.copy(copy, piece, target[None, i, j, stage])


@cute.kernel
def conv_kernel(
    a: cute.Tensor, b: cute.Tensor, taps: cute.Tensor, phases: cute.Tensor, {parameter}d: cute.Tensor, grid: Any, scale: Any, sizes: Any,
    layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout, copy_a: cute.TiledCopy, copy_b: cute.TiledCopy, tiled_mma: cute.TiledMma,
):
    """STAGES tiles are in flight through cp.async; a tile of a for one tap of the filter is the tile of the result's places, shifted by a number of rows that is the tap's own."""
    thread, _, _ = cute.arch.thread_idx()
    work, _, _ = cute.arch.block_idx()
    group, lane, warp_index = 0, thread, thread // 32
    memory = cutlass.memory.SmemAllocator()
    tile_a = memory.allocate_tensor(ELEMENT, layout_a, 128)
    tile_b = memory.allocate_tensor(ELEMENT, layout_b, 128)
    # results by channel; rows are padded by 16 bytes, so that the threads of a fragment fall into different banks
    staged = memory.allocate_tensor(cutlass.Float32, cute.make_layout((STORE_N, ROWS, 1), stride=(ROWS + 4, 1, STORE_N * (ROWS + 4))), 16)
    depth, filters, parts = sizes
    images, grid0, grid1, grid2 = grid
    rows = (images * grid0 * grid1 * grid2 + TILE_M - 1) // TILE_M
    tile_m, tile_n, phase, part = place(work, (filters + TILE_N - 1) // TILE_N, phases.shape[0], rows)
    m0, n0 = tile_m * TILE_M, tile_n * TILE_N
    first, each = phases[phase, 0], depth // TILE_K  # the first tap, and stages of a tap
    steps = phases[phase, 1] * each
    if taps[first, 1] < 0:  # no tap reaches these places
        steps = cutlass.Int32(0)
    mine_a, mine_b = copy_a.get_slice(thread), copy_b.get_slice(thread)
    into_a, where_a = mine_a.partition_D(tile_a), mine_a.partition_S(cute.make_identity_tensor((TILE_M, TILE_K)))
    into_b, where_b = mine_b.partition_D(tile_b), mine_b.partition_S(cute.make_identity_tensor((TILE_N, TILE_K)))
    mine = tiled_mma.get_slice(thread)
    where = mine.partition_C(cute.make_identity_tensor((TILE_M, TILE_N)))
    totals = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((TILE_M, TILE_N)))
    totals.fill(0.0)
{readers}
    for ahead in cutlass.range_constexpr(STAGES - 1):
        if ahead < steps:
            tap, block = divide(cutlass.Int32(ahead), each)
            fetch(copy_a, a, into_a, where_a, m0 + taps[first + tap, 0], part * depth + block * TILE_K, ahead)
            fetch(copy_b, b, into_b, where_b, part * filters + n0, (first + tap) * depth + block * TILE_K, ahead)
        cute.arch.cp_async_commit_group()
    for number in range(steps):
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()  # the tile has arrived for everyone, and nobody still reads the stage that is filled next
        ahead = number + STAGES - 1
        if ahead < steps:
            tap, block = divide(ahead, each)
            fetch(copy_a, a, into_a, where_a, m0 + taps[first + tap, 0], part * depth + block * TILE_K, ahead % STAGES)
            fetch(copy_b, b, into_b, where_b, part * filters + n0, (first + tap) * depth + block * TILE_K, ahead % STAGES)
        cute.arch.cp_async_commit_group()
        stage = number % STAGES
        for step in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
{read}
            cute.gemm(tiled_mma, totals, part_a[None, None, step], part_b[None, None, step], totals)
    places = cute.make_rmem_tensor(ROWS // 32, cutlass.Int64)  # addresses in the first channel of d of the results that this thread stores; -1: none
    values = cute.make_rmem_tensor(ROWS // 32, cutlass.Float32){made}
{store}

@cute.jit
def conv(a: cute.Tensor, b: cute.Tensor, taps: cute.Tensor, phases: cute.Tensor, {parameter}d: cute.Tensor, grid: Any, scale: Any, sizes: Any, stream: cuda.CUstream):
    """a (places, channels), b (filters, taps * channels), d (images, filters, three extents)."""
    tiled_mma = cute.make_tiled_mma({operation}, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, {mk}))
    images, grid0, grid1, grid2 = grid
    _, filters, parts = sizes
    works = ((images * grid0 * grid1 * grid2 + TILE_M - 1) // TILE_M) * ((filters + TILE_N - 1) // TILE_N) * phases.shape[0] * parts
    conv_kernel(a, b, taps, phases, {argument}d, grid, scale, sizes, shared_layout(TILE_M), shared_layout(TILE_N), copies(TILE_M), copies(TILE_N), tiled_mma).launch(grid=[works, 1, 1], block=[THREADS, 1, 1], stream=stream)
'''
FRAGMENT = "((e % 2, e // 2 % 2), e // 4 % (ROWS // 32), 2 * j + e // (ROWS // 8))"  # where element e of a piece of the result is among the thread's sums


def tile_of(stage: Stage) -> tuple[int, int, int]:
    """Places, filters, input channels."""
    tile = setting(stage, "tile")
    return tile if isinstance(tile, tuple) else (128, 64, 64 // BYTES[str(setting(stage, "mma"))])


def stages_of(stage: Stage) -> int:
    """Tiles of the input and of the filters in shared memory."""
    return number(stage, "stages", STAGES)


def shared_bytes(stage: Stage) -> int:
    """Shared memory of a CTA: stages and results."""
    tile = tile_of(stage)
    return stages_of(stage) * stage_bytes(str(setting(stage, "mma")), tile) + STORE_N * (tile[0] + 4) * 4


def emit(stage: Stage, binding: Binding, functions: str) -> Parts:
    """The kernels and the body of forward; `functions` defines the scalar functions of the epilogue."""
    kind, (m, n, k) = str(setting(stage, "mma")), tile_of(stage)
    _, operation, mk, _ = gemm.MMA_OPERATIONS[kind]
    readers, read = (pipelined.TF32_READERS, pipelined.TF32_READ) if kind == "tf32" else (pipelined.LDMATRIX_READERS, pipelined.LDMATRIX_READ)
    base = conv_hopper.fields_of(stage, functions)
    fields = {
        **base, "tm": m, "tn": n, "tk": k, "stages": stages_of(stage), "store_n": STORE_N, "shift": "", "m0": "tile_m * TILE_M", "fragment": FRAGMENT, "operation": operation, "mk": mk,
        "readers": readers.replace("not a_along_k", "False").replace("not b_along_k", "False"), "read": read, "made": str(base["made"]).replace("\n        ", "\n    "), "convolve": conv_hopper.convolve_text(epilogue.chain_of(stage), ""),
    }  # fmt: skip
    store = conv_hopper.without_blank((PLACES + STORE).format(**fields))
    fields["store"] = "".join(line[8:] or "\n" for line in store.splitlines(keepends=True))
    text = (CONSTANTS + DIVIDE + KERNEL + AROUND + "{convolve}\n").format(**fields)
    return Parts(kernels=conv_hopper.without_blank(text), forward=conv_hopper.forward_of(stage, binding), imports=IMPORTS)


def check(stage: Stage) -> list[Rejection]:
    """Rejections of a convolution by mma.sync."""
    kind, tile, stages = setting(stage, "mma"), setting(stage, "tile"), setting(stage, "stages", STAGES)
    if kind == "tf32x3":
        return [Rejection(field="mma", value=kind, reason="mma.sync has no text for float32 in parts", legal="f16, bf16, tf32, or add .schedule(cooperative) and .arch(sm_90a)")]
    if kind not in ("f16", "bf16", "tf32"):
        return [Rejection(field="mma", value=str(kind), reason="what mma.sync multiplies", legal="f16, bf16, tf32")]
    depths = tuple(size // BYTES[str(kind)] for size in (64, 128))
    if tile is not None and (tile not in TILES or tile[2] not in depths):
        said = ", ".join(map(str, tile)) if isinstance(tile, tuple) else str(tile)
        return [Rejection(field="tile", value=said, reason="three extents: places, filters, input channels, in whole fragments and swizzled rows", legal=f"places 64, 128; filters 32, 64, 128; channels {', '.join(map(str, depths))}")]
    if not isinstance(stages, int) or not 2 <= stages <= 8:
        return [Rejection(field="stages", value=str(stages), reason="tiles that are in shared memory at once", legal="2 to 8")]
    if dict(stage.operation.named).get("groups", 1) == "channels":
        return [Rejection(field="groups", value="channels", reason="a filter of one channel leaves a tensor core nothing to sum up", legal="leave mma out, and add .rows(8)")]
    if shared_bytes(stage) > SHARED_BYTES:
        return [Rejection(field="stages", value=str(stages), reason=f"needs {shared_bytes(stage)} bytes of shared memory", legal=f"fewer, or a smaller tile: {SHARED_BYTES} bytes")]
    return []
