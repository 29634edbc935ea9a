"""The im2col matrix of a convolution by TMA: rows are output pixels (w, h, d, n), columns (c, s, r, t); one CTA for
each tile (PIXELS, CHANNELS).
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warpgroup

PIXELS, CHANNELS = 32, 32


class Im2Col:
    """`filters`, `padding` (before, after), `stride`, `dilation`: along (w, h, d)."""

    def __init__(self, filters, before, after, stride, dilation):
        self.filters, self.before, self.after, self.stride, self.dilation = filters, before, after, stride, dilation

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        """x (n, d, h, w, c), y (pixels, c * s * r * t)."""
        self.dtype = x.element_type
        layout = cute.tile_to_shape(
            warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW64, self.dtype), (PIXELS, CHANNELS), (0, 1)
        )
        image = cute.make_tensor(x.iterator, cute.select(x.layout, mode=[3, 2, 1, 0, 4]))
        image = cute.group_modes(image, 0, 4)
        upper = tuple(
            after - (size - 1) * gap for after, size, gap in zip(self.after, self.filters, self.dilation, strict=True)
        )
        tma, tensor = cpasync.make_im2col_tma_atom(
            cpasync.CopyBulkTensorIm2ColG2SOp(),
            image,
            layout,
            (PIXELS, CHANNELS),
            lower_corner_whd=tuple(-p for p in self.before),
            upper_corner_whd=upper,
            lower_padding_whd=self.before,
            upper_padding_whd=self.after,
            stride_whd=self.stride,
            lower_srt=(0, 0, 0),
            stride_srt=self.dilation,
        )
        rows, columns = cute.ceil_div(cute.size(y, mode=[0]), PIXELS), cute.ceil_div(cute.size(y, mode=[1]), CHANNELS)
        self.kernel(tma, tensor, y, layout).launch(grid=[rows, columns, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, tma: cute.CopyAtom, tensor: cute.Tensor, y: cute.Tensor, layout: cute.ComposedLayout):
        thread, _, _ = cute.arch.thread_idx()
        row, column, _ = cute.arch.block_idx()
        memory = cutlass.memory.SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 1)
        tile = memory.allocate_tensor(self.dtype, layout.outer, 1024, swizzle=layout.inner)
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        tiles = cute.local_tile(tensor, (PIXELS, CHANNELS), (None, None))
        into, source = cpasync.tma_partition(
            tma, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2), cute.group_modes(tiles, 0, 2)
        )
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, PIXELS * CHANNELS * self.dtype.width // 8)
        cute.copy(tma, source[None, row, column], into, tma_bar_ptr=barrier)
        cute.arch.mbarrier_wait(barrier, 0)
        for e in range(thread, PIXELS * CHANNELS, 32):
            place = row * PIXELS + e // CHANNELS
            if place < y.shape[0]:
                y[place, column * CHANNELS + e % CHANNELS] = tile[e // CHANNELS, e % CHANNELS]
