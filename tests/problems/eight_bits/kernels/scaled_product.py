import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(a: cute.Tensor, b: cute.Tensor, sa: cute.Tensor, sb: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, row, _ = cute.arch.block_idx()
    column = block * 32 + thread
    if column < out.shape[1]:
        total = cutlass.Float32(0.0)
        for k in cutlass.range(a.shape[1]):
            total += a[row, k].to(cutlass.Float32) * b[column, k].to(cutlass.Float32)
        out[row, column] = (total * sa[0] * sb[0]).to(out.element_type)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, sa: cute.Tensor, sb: cute.Tensor, out: cute.Tensor):
    kernel(a, b, sa, sb, out).launch(grid=[(out.shape[1] + 31) // 32, out.shape[0], 1], block=[32, 1, 1])


def eight(tensor):
    made = from_dlpack(tensor.contiguous().view(torch.uint8)).mark_layout_dynamic(leading_dim=1)
    made.element_type = cutlass.Float8E4M3FN
    return made


class ModelNew(torch.nn.Module):
    def forward(self, a, b, sa, sb):
        out = torch.empty(a.shape[0], b.shape[0], dtype=torch.bfloat16, device=a.device)
        scales = (from_dlpack(s.view(1)) for s in (sa, sb))
        launch(eight(a), eight(b), *scales, from_dlpack(out).mark_layout_dynamic(leading_dim=1))
        return out
