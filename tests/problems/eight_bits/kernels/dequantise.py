import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, scale: cute.Tensor, out: cute.Tensor, count: cutlass.Int32, columns: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 64 + thread
    if i < count:
        out[i] = x[i].to(cutlass.Float32) * scale[i // columns]


@cute.jit
def launch(x: cute.Tensor, scale: cute.Tensor, out: cute.Tensor, count: cutlass.Int32, columns: cutlass.Int32):
    kernel(x, scale, out, count, columns).launch(grid=[(count + 63) // 64, 1, 1], block=[64, 1, 1])


def eight(t):
    made = from_dlpack(t.view(-1).view(torch.uint8)).mark_layout_dynamic()
    made.element_type = cutlass.Float8E4M3FN
    return made


class ModelNew(torch.nn.Module):
    def forward(self, x, scale):
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        x = x.contiguous()
        launch(
            eight(x),
            from_dlpack(scale.contiguous().view(-1)).mark_layout_dynamic(),
            from_dlpack(out.view(-1)).mark_layout_dynamic(),
            cutlass.Int32(out.numel()),
            cutlass.Int32(x.shape[-1]),
        )
        return out
