"""gemm(a, b) .mma(...) .stages(n) -> a multistage tensor-core kernel: cp.async into swizzled shared memory, ldmatrix, mma.sync.

Operands as in `gemm`: a (batch, m, k), b (batch, k, n), d (batch, m, n), any strides with one contiguous extent. The widest access that
the addresses and extents allow (16 to 2 bytes) is chosen when the kernel is called; below 4 bytes the copy cannot be asynchronous.
The short tile of k comes first, so that the zeros that stand for what lies before the matrix are written once, at the start.
"""

from __future__ import annotations

from workbench.dsl import epilogue
from workbench.dsl.expecting import called, empty, expect, expect_axes, some_k
from workbench.dsl.ir import Binding

KERNEL = '''
TILE_M, TILE_N, TILE_K = {tm}, {tn}, {tk}  # what one CTA computes, and how much of k one stage holds
STAGES = {stages}  # tiles of k in shared memory: one is multiplied while the others arrive
ELEMENT = cutlass.{element}  # what shared memory holds
THREADS = 128  # four warps, two along m and two along n

{functions}
def shared_layout(rows, along_k):
    """(rows, TILE_K, STAGES); the 16-byte pieces of neighbouring rows are swizzled into different banks."""
    length = min(TILE_K if along_k else rows, 1024 // ELEMENT.width)
    bits = min(3, int(math.log2(length * ELEMENT.width // 128)))
    base = int(math.log2(128 // ELEMENT.width))
    plain = cute.make_layout((8, length), stride=(length, 1)) if along_k else cute.make_layout((length, 8), stride=(1, length))
    piece = cute.make_composed_layout(cute.make_swizzle(bits, base, 3), 0, plain)
    return cute.tile_to_shape(piece, (rows, TILE_K, STAGES), (0, 1, 2) if along_k else (1, 0, 2))


def copy_of(rows, along_k, width):
    """Each thread copies `width` bits along the contiguous extent; asynchronously from 32 bits on."""
    vector = width // ELEMENT.width
    if width >= 32:
        mode = cute.nvgpu.cpasync.LoadCacheMode.GLOBAL if width == 128 else cute.nvgpu.cpasync.LoadCacheMode.ALWAYS
        operation = cute.nvgpu.cpasync.CopyG2SOp(cache_mode=mode)
    else:
        operation = cute.nvgpu.CopyUniversalOp()
    atom = cute.make_copy_atom(operation, ELEMENT, num_bits_per_copy=width)
    across = min(THREADS, (TILE_K if along_k else rows) // vector)
    threads = cute.make_layout((THREADS // across, across), stride=(across, 1)) if along_k else cute.make_layout((across, THREADS // across))
    return cute.make_tiled_copy_tv(atom, threads, cute.make_layout((1, vector) if along_k else (vector, 1)))


@cute.jit
def fetch(
    copy: cute.TiledCopy, source: cute.Tensor, target: cute.Tensor, where: cute.Tensor, rows: cutlass.Int32, skip: cutlass.Int32,
    tile: cutlass.Int32, stage: cutlass.Int32, width: cutlass.Constexpr,
):
    """Start copying one tile of k; rows past the matrix, and the k before it in tile 0, keep their zeros."""
    for i in cutlass.range_constexpr(cute.size(target, mode=[1])):
        for j in cutlass.range_constexpr(cute.size(target, mode=[2])):
            row, inner = where[(0, 0), i, j]
            if row < rows and (tile > 0 or inner >= skip):
                piece = source[None, i, j, tile]
                cute.copy(copy, cute.make_tensor(piece.iterator.align(width // 8), piece.layout), target[None, i, j, stage])


@cute.kernel
def gemm_kernel(
    a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32,
    layout_a: cute.ComposedLayout, layout_b: cute.ComposedLayout, copy_a: cute.TiledCopy, copy_b: cute.TiledCopy, tiled_mma: cute.TiledMma,
    width_a: cutlass.Constexpr, width_b: cutlass.Constexpr, a_along_k: cutlass.Constexpr, b_along_k: cutlass.Constexpr,
):
    """STAGES tiles of a and b are in flight through cp.async; fragments go from shared memory to the tensor cores."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    across, down = (n + TILE_N - 1) // TILE_N, (m + TILE_M - 1) // TILE_M
    block_n, block_m, batch = block % across, block // across % down, block // across // down  # along one axis of the grid: the others end at 65535
    memory = cutlass.memory.SmemAllocator()
    tile_a = memory.allocate_tensor(ELEMENT, layout_a, 128)
    tile_b = memory.allocate_tensor(ELEMENT, layout_b, 128)
    tiles = (k + TILE_K - 1) // TILE_K
    skip = tiles * TILE_K - k  # the first tile is the short one: its first `skip` columns lie before the matrix
    view_a = a[batch, None, None]
    view_b = cute.make_tensor(b[batch, None, None].iterator, cute.select(b[batch, None, None].layout, mode=[1, 0]))  # (n, k)
    view_a = cute.domain_offset((block_m * TILE_M, -skip), view_a)
    view_b = cute.domain_offset((block_n * TILE_N, -skip), view_b)
    global_a = cute.local_tile(view_a, (TILE_M, TILE_K), (0, None))
    global_b = cute.local_tile(view_b, (TILE_N, TILE_K), (0, None))
    rows_a = m - block_m * TILE_M
    rows_b = n - block_n * TILE_N
    mine_a, mine_b = copy_a.get_slice(thread), copy_b.get_slice(thread)
    from_a, into_a, where_a = mine_a.partition_S(global_a), mine_a.partition_D(tile_a), mine_a.partition_S(cute.make_identity_tensor((TILE_M, TILE_K)))
    from_b, into_b, where_b = mine_b.partition_S(global_b), mine_b.partition_D(tile_b), mine_b.partition_S(cute.make_identity_tensor((TILE_N, TILE_K)))
    into_a.fill(0.0)
    into_b.fill(0.0)
    cute.arch.sync_threads()
    mine = tiled_mma.get_slice(thread)
    where = mine.partition_C(cute.make_identity_tensor((TILE_M, TILE_N)))
    totals = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((TILE_M, TILE_N)))
    totals.fill(0.0)
{readers}
    for ahead in cutlass.range_constexpr(STAGES - 1):
        if ahead < tiles:
            fetch(copy_a, from_a, into_a, where_a, rows_a, skip, ahead, ahead, width_a)
            fetch(copy_b, from_b, into_b, where_b, rows_b, skip, ahead, ahead, width_b)
        cute.arch.cp_async_commit_group()
    for tile in range(tiles):
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()  # the tile has arrived for everyone, and nobody still reads the stage that is filled next
        ahead = tile + STAGES - 1
        if ahead < tiles:
            fetch(copy_a, from_a, into_a, where_a, rows_a, skip, ahead, ahead % STAGES, width_a)
            fetch(copy_b, from_b, into_b, where_b, rows_b, skip, ahead, ahead % STAGES, width_b)
        cute.arch.cp_async_commit_group()
        stage = tile % STAGES
        for step in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
{read}
            cute.gemm(tiled_mma, totals, part_a[None, None, step], part_b[None, None, step], totals)
    for e in cutlass.range_constexpr(cute.size(totals)):
        row = block_m * TILE_M + where[e][0]
        column = block_n * TILE_N + where[e][1]
        if row < m:
            if column < n:
                total = totals[e]
{epilogue}


@cute.jit
def gemm(
    a: cute.Tensor, b: cute.Tensor, {parameter}d: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32, k: cutlass.Int32, batches: cutlass.Int32, stream: cuda.CUstream,
    width_a: cutlass.Constexpr, width_b: cutlass.Constexpr, a_along_k: cutlass.Constexpr, b_along_k: cutlass.Constexpr,
):
    operation = {operation}
    tiled_mma = cute.make_tiled_mma(operation, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, {mk}))
    layout_a, layout_b = shared_layout(TILE_M, a_along_k), shared_layout(TILE_N, b_along_k)
    copy_a, copy_b = copy_of(TILE_M, a_along_k, width_a), copy_of(TILE_N, b_along_k, width_b)
    gemm_kernel(
        a, b, {argument}d, m, n, k, layout_a, layout_b, copy_a, copy_b, tiled_mma, width_a, width_b, a_along_k, b_along_k,
    ).launch(grid=[((n + TILE_N - 1) // TILE_N) * ((m + TILE_M - 1) // TILE_M) * batches, 1, 1], block=[THREADS, 1, 1], stream=stream)


def access_bits(tensor):
    """The widest access, in bits, that every row's start and length allow."""
    size = tensor.element_size()
    steps = [stride * size for stride, extent in zip(tensor.stride(), tensor.shape) if stride != 1 and extent > 1]
    lengths = [extent * size for stride, extent in zip(tensor.stride(), tensor.shape) if stride == 1]
    return 8 * math.gcd(16, tensor.data_ptr(), *steps, *lengths)
'''
LDMATRIX_READERS = """\
    part_a = tiled_mma.make_fragment_A(mine.partition_A(tile_a[None, None, 0]))
    part_b = tiled_mma.make_fragment_B(mine.partition_B(tile_b[None, None, 0]))
    read_a = cute.make_tiled_copy_A(cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(not a_along_k, 4), ELEMENT), tiled_mma)
    read_b = cute.make_tiled_copy_B(cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(not b_along_k, 4), ELEMENT), tiled_mma)
    shared_a, shared_b = read_a.get_slice(thread).partition_S(tile_a), read_b.get_slice(thread).partition_S(tile_b)
    copied_a, copied_b = read_a.retile(part_a), read_b.retile(part_b)"""
LDMATRIX_READ = """\
            cute.copy(read_a, shared_a[None, None, step, stage], copied_a[None, None, step])
            cute.copy(read_b, shared_b[None, None, step, stage], copied_b[None, None, step])"""
TF32_READERS = """\
    shared_a, shared_b = mine.partition_A(tile_a), mine.partition_B(tile_b)
    part_a = cute.make_rmem_tensor(tiled_mma.partition_shape_A((TILE_M, TILE_K)), cutlass.TFloat32)
    part_b = cute.make_rmem_tensor(tiled_mma.partition_shape_B((TILE_N, TILE_K)), cutlass.TFloat32)"""
TF32_READ = """\
            # shared memory holds float32; the tensor cores take it rounded to tf32
            for e in cutlass.range_constexpr(cute.size(part_a, mode=[0])):
                for i in cutlass.range_constexpr(cute.size(part_a, mode=[1])):
                    part_a[e, i, step] = shared_a[e, i, step, stage].to(cutlass.TFloat32)
            for e in cutlass.range_constexpr(cute.size(part_b, mode=[0])):
                for i in cutlass.range_constexpr(cute.size(part_b, mode=[1])):
                    part_b[e, i, step] = shared_b[e, i, step, stage].to(cutlass.TFloat32)"""
ELEMENTS = {"f16": "Float16", "bf16": "BFloat16", "tf32": "Float32"}


def kernel(kind: str, tile: tuple[int, int, int], stages: int, operation: str, step_k: int, epilogue: str, common: dict[str, str]) -> str:
    """The kernel's text; `kind` is f16, bf16 or tf32, `step_k` the k of one mma.sync."""
    readers, read = (TF32_READERS, TF32_READ) if kind == "tf32" else (LDMATRIX_READERS, LDMATRIX_READ)
    return KERNEL.format(tm=tile[0], tn=tile[1], tk=tile[2], stages=stages, element=ELEMENTS[kind], operation=operation, mk=step_k, readers=readers, read=read, epilogue=epilogue, **common)


def forward(binding: Binding, chain: epilogue.Chain, dtype: str) -> str:
    """The body of forward: everything as (batch, rows, columns), one compile per alignment and layout; `dtype` is torch's word for the operands'."""
    bound = dict(binding.operands)
    lines = [
        f"a, b = {bound.get('a', 'a')}, {bound.get('b', 'b')}",
        expect_axes(called("a", bound), "a", 2, 3),
        "m, k = a.shape[-2:]",
        "n = b.shape[-1]",
        expect(called("a", bound), "a", "a.shape", f"(torch.{dtype},)"),
        expect(called("b", bound), "b", "(*a.shape[:-2], k, n)", "(a.dtype,)"),
        f"d = torch.empty(*a.shape[:-1], n, dtype={chain.dtype('a.dtype')}, device=a.device)",
        *epilogue.expected(chain, bound, "m", "n", "d.shape"),
        *empty("d"),
        *some_k("k", -1, -2),
        "    k = 1",
        "a3 = a if a.dim() == 3 else a.unsqueeze(0)",
        "b3 = b if b.dim() == 3 else b.unsqueeze(0)",
        "d3 = d if d.dim() == 3 else d.unsqueeze(0)",
        "# what the kernel is compiled for: access widths in bits, and whether k is the contiguous extent of a and of b",
        "constants = (access_bits(a3), access_bits(b3), a3.stride(2) == 1, b3.stride(1) == 1)",
        f"call(gemm, (a.dtype, {epilogue.keys(chain, bound)}*constants), (",
        "    from_dlpack(a3.detach(), assumed_align=constants[0] // 8).mark_layout_dynamic(leading_dim=2 if constants[2] else 1),",
        "    from_dlpack(b3.detach(), assumed_align=constants[1] // 8).mark_layout_dynamic(leading_dim=1 if constants[3] else 2),",
        *(f"    {view}," for view in epilogue.views(chain, bound)),
        "    from_dlpack(d3).mark_layout_dynamic(leading_dim=2),",
        "    cutlass.Int32(m), cutlass.Int32(n), cutlass.Int32(k), cutlass.Int32(d3.shape[0]),",
        "), constants)",
        "return d",
    ]
    return "\n".join(lines)
