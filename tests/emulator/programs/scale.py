"""y = 2 x on a GPU, as such programs are written: compiled ahead, on a stream of its own, timed, checked. `--over N`
reads N elements too many.
"""

import argparse

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.torch as cutlass_torch
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.testing import JitArguments, benchmark


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, talk: cutlass.Constexpr):
    """One element a thread."""
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < n:
        y[i] = x[i] * 2.0
        if cutlass.const_expr(talk) and i == 0:
            cute.printf("first is %f", y[i])


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, stream: cuda.CUstream, talk: cutlass.Constexpr = False):
    """Launch scale_kernel."""
    scale_kernel(x, y, n, talk).launch(grid=((n + 127) // 128, 1, 1), block=(128, 1, 1), stream=stream)


def main() -> None:
    """Parse, run, check, time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--over", type=int, default=0)
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--catch", action="store_true")
    options = parser.parse_args()
    assert torch.cuda.is_available()
    x = torch.randn(options.n, device="cuda")
    y = torch.empty_like(x)
    own = torch.cuda.Stream()
    stream = cuda.CUstream(own.cuda_stream)
    source = x.cpu() if options.host else x
    arguments = (
        from_dlpack(source).mark_layout_dynamic(),
        from_dlpack(y).mark_layout_dynamic(),
        options.n + options.over,
        stream,
    )
    compiled = cute.compile(scale, *arguments, True, options="--opt-level 2")
    try:
        compiled(*arguments)
    except Exception as error:
        if not options.catch:
            raise
        print("caught:", error)
        return
    own.synchronize()
    torch.testing.assert_close(y, x * 2)
    assert (y.cpu().numpy() == (x * 2).cpu().numpy()).all() and cutlass_torch.default_stream() is not None
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    scale(*arguments)
    last.record()
    torch.cuda.synchronize()
    assert first.elapsed_time(last) > 0
    print(f"time {benchmark(compiled, kernel_arguments=JitArguments(*arguments), stream=stream):.4f} us")
    hardware = cutlass.utils.HardwareInfo()
    print(
        torch.cuda.get_device_name(),
        torch.cuda.get_device_capability(),
        hardware.get_device_multiprocessor_count(),
        hardware.get_max_active_clusters(2),
    )
    raise SystemExit(options.status)


if __name__ == "__main__":
    main()
