"""One wgmma tile with A from registers and B from shared memory that the threads fill: D (64, n) = A (64, k) @ B (n, k)
transposed.
"""

import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
from cutlass.cute.nvgpu import warpgroup


@cute.kernel
def tile_kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    d: cute.Tensor,
    tiled_mma: cute.TiledMma,
    layout_b: cute.ComposedLayout,
    fenced: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    shared_b = cutlass.memory.SmemAllocator().allocate_tensor(
        b.element_type, layout_b.outer, 1024, swizzle=layout_b.inner
    )
    n, k = b.shape
    for e in range(thread, n * k, 128):
        shared_b[e // k, e % k, 0] = b[e // k, e % k]
    if cutlass.const_expr(fenced):
        cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    mine = tiled_mma.get_slice(thread)
    part_a = tiled_mma.make_fragment_A(mine.partition_A(a))
    cute.autovec_copy(mine.partition_A(a), part_a)
    part_b = tiled_mma.make_fragment_B(mine.partition_B(shared_b))
    part_d = mine.partition_C(d)
    totals = tiled_mma.make_fragment_C(part_d.shape)
    warpgroup.fence()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)
    for part in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
        cute.gemm(tiled_mma, totals, part_a[None, None, part], part_b[None, None, part, 0], totals)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    cute.autovec_copy(totals, part_d)


@cute.jit
def tile(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor, fenced: cutlass.Constexpr):
    major = utils.LayoutEnum.ROW_MAJOR.sm90_mma_major_mode()
    n, k = b.shape
    tiled_mma = sm90.make_trivial_tiled_mma(
        a.element_type,
        b.element_type,
        major,
        major,
        cutlass.Float32,
        (1, 1, 1),
        tiler_mn=(64, n),
        a_source=warpgroup.OperandSource.RMEM,
    )
    layout_b = sm90.make_smem_layout_b(utils.LayoutEnum.ROW_MAJOR, (64, n, k), b.element_type, 1)
    tile_kernel(a, b, d, tiled_mma, layout_b, fenced).launch(grid=[1, 1, 1], block=[128, 1, 1])
