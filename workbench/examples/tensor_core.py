"""What the tensor-core examples share: tiles in shared memory, copies into them, and their product by mma.sync.

For sm_80 and up: swizzled tiles, asynchronous copies (cp.async), ldmatrix. A CTA of 128 threads, 4 warps in a 2 x 2
grid, computes a tile of D = A @ B transposed, from tiles of A (rows, depth) and B (columns, depth). STAGES tiles of the
depth are in shared memory: one is multiplied while the copies of the others are in flight.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import nvvm
from cutlass.cutlass_dsl import dsl_user_op

THREADS = 128


def shared_layout(rows: int, depth: int, stages: int, along_depth: bool) -> cute.ComposedLayout:
    """(rows, depth, stages) for 16-bit elements, contiguous along the depth or along the rows.

    The 16-byte chunks of 8 neighbouring lines are swizzled into different banks.
    """
    length = min(depth if along_depth else rows, 64)
    swizzle = cute.make_swizzle(int(math.log2(length // 8)), 3, 3)
    plain = (
        cute.make_layout((8, length), stride=(length, 1))
        if along_depth
        else cute.make_layout((length, 8), stride=(1, length))
    )
    return cute.tile_to_shape(
        cute.make_composed_layout(swizzle, 0, plain), (rows, depth, stages), (0, 1, 2) if along_depth else (1, 0, 2)
    )


def tiled_mma(element) -> cute.TiledMma:
    """mma.sync m16n8k16 with float32 sums, over 2 x 2 warps; each takes 16 x 16 blocks, as ldmatrix.x4 loads them."""
    return cute.make_tiled_mma(
        cute.nvgpu.warp.MmaF16BF16Op(element, cutlass.Float32, (16, 8, 16)),
        cute.make_layout((2, 2, 1)),
        permutation_mnk=(32, 32, 16),
    )


@dsl_user_op
def copy_async(target, source, count, size: int, *, loc=None, ip=None) -> None:
    """cp.async of `size` bytes (4, 8 or 16) from global to shared memory.

    Of these only the first `count` are read, zeros stand for the rest.
    """
    cache = nvvm.LoadCacheModifierKind.CG if size == 16 else nvvm.LoadCacheModifierKind.CA
    into, frm = target.to_llvm_ptr(loc=loc, ip=ip), source.to_llvm_ptr(loc=loc, ip=ip)
    nvvm.cp_async_shared_global(
        into, frm, size, cache, cp_size=cutlass.Int32(count).ir_value(loc=loc, ip=ip), loc=loc, ip=ip
    )


@cute.jit
def put(tile: cute.Tensor, row, column, stage, source, inside, width: cutlass.Constexpr) -> None:
    """Copy `width` elements from the pointer `source` into the tile, or zeros if not `inside`.

    The copy is asynchronous where it has 4 bytes or more.
    """
    if cutlass.const_expr(width == 1):
        value = tile.element_type(0)
        if inside:
            value = cute.make_tensor(source, cute.make_layout(1))[0]
        tile[row, column, stage] = value
    else:
        count = 2 * width if inside else 0
        copy_async(tile.iterator + cute.crd2idx((row, column, stage), tile.layout), source, count, 2 * width)


@cute.jit
def fetch(
    matrix: cute.Tensor,
    tile: cute.Tensor,
    stage,
    row,
    column,
    rows,
    columns,
    extent: cutlass.Constexpr,
    depth: cutlass.Constexpr,
    along_depth: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    """Start copying the (extent, depth) tile at (row, column) of a (rows, columns) matrix into a stage.

    Neighbouring threads copy neighbouring chunks of `width` elements.
    """
    steps = extent * depth // width // THREADS
    if cutlass.const_expr(steps <= 16):
        for step in cutlass.range_constexpr(steps):
            _fetch_step(matrix, tile, stage, row, column, rows, columns, step, extent, depth, along_depth, width)
    else:  # narrow accesses: too many to write out
        for step in cutlass.range(steps, unroll=8):
            _fetch_step(matrix, tile, stage, row, column, rows, columns, step, extent, depth, along_depth, width)


@cute.jit
def _fetch_step(
    matrix: cute.Tensor,
    tile: cute.Tensor,
    stage,
    row,
    column,
    rows,
    columns,
    step,
    extent: cutlass.Constexpr,
    depth: cutlass.Constexpr,
    along_depth: cutlass.Constexpr,
    width: cutlass.Constexpr,
) -> None:
    thread, _, _ = cute.arch.thread_idx()
    across = (depth if cutlass.const_expr(along_depth) else extent) // width
    line = (step * THREADS + thread) // across
    chunk = (step * THREADS + thread) % across * width
    i, j = line, chunk
    if cutlass.const_expr(not along_depth):
        i, j = chunk, line
    inside = (row + i < rows) & (column + j < columns)
    put(tile, i, j, stage, matrix.iterator + cute.crd2idx((row + i, column + j), matrix.layout), inside, width)


class Product:
    """A thread's part of the product of two staged tiles, as it is built into a kernel."""

    def __init__(
        self,
        mma,
        tile_a,
        tile_b,
        extents: tuple[int, int],
        along_depth: tuple[bool, bool] = (True, True),
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        mine = mma.get_slice(thread)
        self.mma = mma
        self.part_a, self.part_b = (
            mma.make_fragment_A(mine.partition_A(tile_a[None, None, 0])),
            mma.make_fragment_B(mine.partition_B(tile_b[None, None, 0])),
        )
        kind = tile_a.element_type
        self.load_a = cute.make_tiled_copy_A(
            cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(not along_depth[0], 4), kind), mma
        )
        self.load_b = cute.make_tiled_copy_B(
            cute.make_copy_atom(cute.nvgpu.warp.LdMatrix8x8x16bOp(not along_depth[1], 4), kind), mma
        )
        self.shared_a, self.shared_b = (
            self.load_a.get_slice(thread).partition_S(tile_a),
            self.load_b.get_slice(thread).partition_S(tile_b),
        )
        self.into_a, self.into_b = self.load_a.retile(self.part_a), self.load_b.retile(self.part_b)
        self.totals = mma.make_fragment_C(mma.partition_shape_C(extents))
        self.totals.fill(0.0)
        self.where = mine.partition_C(cute.make_identity_tensor(extents))

    def load(self, step: int, stage) -> None:
        """ldmatrix: the fragments of one 16-deep step."""
        cute.copy(self.load_a, self.shared_a[None, None, step, stage], self.into_a[None, None, step])
        cute.copy(self.load_b, self.shared_b[None, None, step, stage], self.into_b[None, None, step])


def multiply(product: Product, stage) -> None:
    """Add the product of a stage's tiles; each step's fragments are loaded while the step before is multiplied.

    This is no method, because a loop would carry the object of a method call.
    """
    steps = cute.size(product.part_a, mode=[2])
    product.load(0, stage)
    for step in range(steps):
        if step + 1 < steps:
            product.load(step + 1, stage)
        cute.gemm(
            product.mma,
            product.totals,
            product.part_a[None, None, step],
            product.part_b[None, None, step],
            product.totals,
        )


@cute.jit
def store(
    totals: cute.Tensor,
    where: cute.Tensor,
    d: cute.Tensor,
    row,
    column,
    rows,
    columns,
    pairs: cutlass.Constexpr,
) -> None:
    """Convert and store a tile to d (rows * columns), clipped at the edges.

    The two neighbours that a thread has go out in one access where `pairs` (columns even) allows it.
    """
    width = 2 if cutlass.const_expr(pairs) else 1
    out = cute.make_rmem_tensor(cute.make_layout(width), d.element_type)
    slots = cute.zipped_divide(d, (width,))
    for m in cutlass.range_constexpr(cute.size(totals, mode=[1])):
        for n in cutlass.range_constexpr(cute.size(totals, mode=[2])):
            for v in cutlass.range_constexpr(4 // width):  # a thread has ((2 neighbours, 2 rows), m, n)
                i, j = row + where[v * width, m, n][0], column + where[v * width, m, n][1]
                if (i < rows) & (j < columns):
                    for e in cutlass.range_constexpr(width):
                        out[e] = totals[v * width + e, m, n].to(d.element_type)
                    cute.autovec_copy(out, slots[None, (cutlass.Int64(i) * columns + j) // width])


@cute.jit
def add_atomically(totals: cute.Tensor, where: cute.Tensor, d: cute.Tensor, row, column, rows, columns) -> None:
    """Add a tile to d (rows * columns), float32, clipped at the edges."""
    for m in cutlass.range_constexpr(cute.size(totals, mode=[1])):
        for n in cutlass.range_constexpr(cute.size(totals, mode=[2])):
            for v in cutlass.range_constexpr(4):
                i, j = row + where[v, m, n][0], column + where[v, m, n][1]
                if (i < rows) & (j < columns):
                    cute.arch.atomic_add(
                        d.iterator + (cutlass.Int64(i) * columns + j), totals[v, m, n], sem="relaxed", scope="gpu"
                    )
