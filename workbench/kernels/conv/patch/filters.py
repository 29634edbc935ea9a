"""Packing of filters for a convolution by patches: w in torch's layout -> fragments of mma.sync.

They are float32, which mma.sync reads as TF32; the conversion to TF32 emits no cvt, so their low bits stay.

B is (stages, tiles of filters, blocks of eight k, pairs of eight filters, lanes, 4): a lane loads what it multiplies
for sixteen filters as one vector of 16 bytes.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.conv.indexing import divide
from workbench.kernels.static import Static


@cute.kernel
def pack_fragments_kernel(cfg: Static, mW: cute.Tensor, mB: cute.Tensor, entries: cute.Tensor, sizes: cute.IntTuple):
    """Compute one element of B per thread."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = bidx * 256 + tidx
    channels, filters, groups, step = sizes
    blocks, tiles = entries.shape[0] // 8, (filters + cfg.tile_n - 1) // cfg.tile_n
    if at < mB.shape[0]:
        rest, place = divide(at, 4)
        rest, lane = divide(rest, 32)
        rest, pair = divide(rest, cfg.tile_n // 16)
        rest, block = divide(rest, blocks)
        rest, tile = divide(rest, tiles)
        chunk, group = divide(rest, groups)
        k = block * 8 + lane % 4 + place % 2 * 4
        own = tile * cfg.tile_n + (pair * 2 + place // 2) * 8 + lane // 4
        tap, c = entries[k, 1], chunk * step + entries[k, 2]
        value = mW.element_type(0.0)
        if (tap >= 0) & (c < channels) & (own < filters):
            if cutlass.const_expr(cfg.transposed):
                value = mW[group * channels + c, own, tap]
            else:
                value = mW[group * filters + own, c, tap]
        rounded = cute.make_rmem_tensor(1, cutlass.TFloat32)
        rounded[0] = value.to(cutlass.TFloat32)
        mB[at] = cute.recast_tensor(rounded, cutlass.Float32)[0]


@cute.jit
def pack_fragments(
    cfg: Static,
    mW: cute.Tensor,
    mB: cute.Tensor,
    entries: cute.Tensor,
    sizes: cute.IntTuple,
    stream: cuda.CUstream,
):
    """w, its taps flattened to one extent -> B; `sizes`: channels and filters of a group, groups, channels a stage."""
    pack_fragments_kernel(cfg, mW, mB, entries, sizes).launch(
        grid=[(mB.shape[0] + 255) // 256, 1, 1], block=[256, 1, 1], stream=stream
    )
