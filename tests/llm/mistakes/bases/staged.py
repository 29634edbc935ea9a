"""Correct: relu in fp16 through shared memory, filled with 128-bit cp.async. Each mistake of mistakes.toml changes a line of it."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack


@cute.struct
class Storage:
    tile: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, 512], 128]


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    storage = cutlass.memory.SmemAllocator().allocate(Storage)
    tile = storage.tile.get_tensor(cute.make_layout(512))
    atom = cute.make_copy_atom(cute.nvgpu.cpasync.CopyG2SOp(), cutlass.Float16, num_bits_per_copy=128)
    group = block * 64 + thread
    if group * 8 < count:
        cute.copy(atom, cute.zipped_divide(x, (8,))[None, group], cute.zipped_divide(tile, (8,))[None, thread])
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    for step in cutlass.range_constexpr(8):
        i = block * 512 + step * 64 + thread
        if i < count:
            y[i] = cute.arch.fmax(tile[step * 64 + thread].to(cutlass.Float32), cutlass.Float32(0.0)).to(cutlass.Float16)


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    relu_kernel(x, y, count).launch(grid=[(count + 511) // 512, 1, 1], block=[64, 1, 1])


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        views = [from_dlpack(t.view(-1), assumed_align=16).mark_layout_dynamic().mark_compact_shape_dynamic(mode=0, divisibility=8) for t in (x, y)]
        relu(*views, cutlass.Int32(x.numel()))
        return y
