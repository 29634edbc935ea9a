"""Twice a matrix. Slow: four warps on each SM wait for every vector before they ask for the next one."""

import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS, CTAS = 128, 132


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    for at in range(block * THREADS + thread, x.shape[1], CTAS * THREADS):
        y[None, at].store(x[None, at].load() * 2.0)  # planted


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    fours = cute.make_layout((4, cute.size(x) // 4), stride=(1, 4))
    kernel(cute.make_tensor(x.iterator, fours), cute.make_tensor(y.iterator, fours)).launch(
        grid=[CTAS, 1, 1], block=[THREADS, 1, 1]
    )


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(*(from_dlpack(tensor.view(-1), assumed_align=16).mark_layout_dynamic() for tensor in (x, y)))
        return y
