import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, scale: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 64 + thread
    if i < count:
        out[i] = cute.arch.fmin(
            cute.arch.fmax((x[i].to(cutlass.Float32) / scale[0]), cutlass.Float32(-448.0)), cutlass.Float32(448.0)
        ).to(out.element_type)


@cute.jit
def launch(x: cute.Tensor, scale: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    kernel(x, scale, out, count).launch(grid=[(count + 63) // 64, 1, 1], block=[64, 1, 1])


def flat(t):
    if t.itemsize > 1:
        return from_dlpack(t.view(-1)).mark_layout_dynamic()
    made = from_dlpack(t.view(-1).view(torch.uint8)).mark_layout_dynamic()
    made.element_type = {torch.float8_e4m3fn: cutlass.Float8E4M3FN, torch.float8_e5m2: cutlass.Float8E5M2}[t.dtype]
    return made


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.05))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
        launch(flat(x), flat(self.scale.view(1)), flat(out), cutlass.Int32(out.numel()))
        return out
