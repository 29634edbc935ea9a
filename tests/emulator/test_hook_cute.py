"""CuTe DSL programs under `emulated()`: real compiles, launches on the CPU, findings on the program's own lines."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.emulator import EmulationFault, emulated
from workbench.emulator.host import patches
from workbench.errors import UserError


@cute.kernel
def add_kernel(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, n: cutlass.Int32) -> None:
    """z = x + y on the first n elements."""
    at = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if at < n:
        z[at] = x[at] + y[at]


@cute.jit
def add(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, n: cutlass.Int32) -> None:
    """Launch add_kernel."""
    add_kernel(x, y, z, n).launch(grid=((n + 127) // 128, 1, 1), block=(128, 1, 1))


@cute.kernel
def talk_kernel(x: cute.Tensor) -> None:
    """Print from two threads, then from one."""
    lane = cute.arch.thread_idx()[0]
    if lane < 2:
        cute.printf("lane %d holds %f", lane, x[lane])
    if lane == 0:
        cute.printf("%5.2f|%u|%lld|%x|%%", x[3], lane, cutlass.Int64(-7), cutlass.Int32(255))


@cute.jit
def talk(x: cute.Tensor) -> None:
    """Launch talk_kernel."""
    talk_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def rotate_kernel(x: cute.Tensor, z: cute.Tensor) -> None:
    """Eight values a thread through a register tensor that is indexed at run time, so it lives in local memory."""
    lane = cute.arch.thread_idx()[0]
    held = cute.make_rmem_tensor(8, cutlass.Float32)
    for n in cutlass.range(8, unroll=1):
        held[(n + lane) % 8] = x[lane * 8 + n]
    for n in cutlass.range(8, unroll=1):
        z[lane * 8 + n] = held[n]


@cute.jit
def rotate(x: cute.Tensor, z: cute.Tensor) -> None:
    """Launch rotate_kernel."""
    rotate_kernel(x, z).launch(grid=(1, 1, 1), block=(64, 1, 1))


def line_of(text: str) -> int:
    """The number of the line of this file that holds `text`."""
    lines = linecache.getlines(__file__)
    return next(n for n, line in enumerate(lines, 1) if line.strip() == text)


def operands(size: int) -> Iterator[torch.Tensor]:
    yield torch.arange(size, dtype=torch.float32)
    yield torch.full((size,), 0.5)
    yield torch.empty(size)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("size", [128, 1000])
def test_vector_add_agrees_and_counts_its_bytes(arch: str, size: int) -> None:
    with emulated(arch=arch, source_file=__file__) as emulation:
        x, y, z = operands(size)
        add(from_dlpack(x), from_dlpack(y), from_dlpack(z), size)
        assert emulation.watch.count_unwritten_bytes(z) == 0
    assert torch.equal(z, x + y)
    (launch,) = emulation.launches
    assert (launch.total.global_read_bytes, launch.total.global_write_bytes) == (8 * size, 4 * size)
    assert line_of("z[at] = x[at] + y[at]") in [counts.line for counts in launch.lines]
    assert f".target {arch}" in emulation.modules[0].ptx and emulation.modules[0].cubin[:4] == b"\x7fELF"


def test_a_function_compiled_ahead_is_loaded_once() -> None:
    with emulated(source_file=__file__) as emulation:
        x, y, z = operands(256)
        compiled = cute.compile(add, from_dlpack(x), from_dlpack(y), from_dlpack(z), 256)
        for _ in range(3):
            compiled(from_dlpack(x), from_dlpack(y), from_dlpack(z), 256)
    assert torch.equal(z, x + y) and len(emulation.launches) == 3 and len(emulation.modules) == 1


def test_memoised_source_locations_are_those_of_cute(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled() -> str:
        with emulated(source_file=__file__) as emulation:
            size = 8 * 64
            run = cute.compile(rotate, from_dlpack(torch.arange(size).float()), from_dlpack(torch.empty(size)))
            run(from_dlpack(torch.arange(size).float()), from_dlpack(torch.empty(size)))
        (module,) = emulation.modules
        return re.sub(r"cutegen-\w+", "", module.ptx)

    memoised = compiled()
    monkeypatch.setattr(patches, "memoise_source_locations", lambda replace: None)
    assert memoised == compiled() and memoised.count(".loc\t") > 10


def test_out_of_bounds_names_the_line() -> None:
    with emulated(source_file=__file__), pytest.raises(EmulationFault) as caught:
        x, y, z = operands(256)
        add(from_dlpack(x[:200].clone()), from_dlpack(y), from_dlpack(z), 256)
    failure = caught.value.failure
    assert (
        failure.kind == "out_of_bounds"
        and failure.line == line_of("z[at] = x[at] + y[at]")
        and "thread (72, 0, 0) of block (1, 0, 0)" in failure.message
    )


def test_uninitialised_read_names_the_line() -> None:
    with emulated(source_file=__file__), pytest.raises(EmulationFault) as caught:
        x, _, z = operands(128)
        add(from_dlpack(x), from_dlpack(torch.empty(128)), from_dlpack(z), 128)
    failure = caught.value.failure
    assert failure.kind == "uninitialised" and failure.line == line_of("z[at] = x[at] + y[at]")


def test_printf_goes_to_the_launch_and_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with emulated(source_file=__file__) as emulation:
        talk(from_dlpack(torch.arange(32, dtype=torch.float32)))
    said = ["lane 0 holds 0.000000", "lane 1 holds 1.000000", " 3.00|0|-7|ff|%"]
    assert emulation.launches[0].printed.splitlines() == said and capsys.readouterr().out.splitlines() == said


def test_a_register_tensor_indexed_at_run_time_is_each_threads_own() -> None:
    with emulated(source_file=__file__) as emulation:
        x, z = torch.rand(512), torch.empty(512)
        rotate(from_dlpack(x), from_dlpack(z))
    assert ".local" in emulation.modules[0].ptx
    expected = torch.stack([torch.roll(row, lane % 8) for lane, row in enumerate(x.view(64, 8))]).flatten()
    assert torch.equal(z, expected)


def test_emulations_do_not_nest_and_leave_nothing_behind() -> None:
    from cutlass._mlir.execution_engine import ExecutionEngine
    from cutlass.base_dsl.compiler import CompileOptions

    before = (ExecutionEngine.__init__, CompileOptions.apply_envar_settings, cute.runtime._Tensor.load_dltensor)
    with emulated():
        assert ExecutionEngine.__init__ is not before[0]
        with pytest.raises(UserError, match="already active"), emulated():
            pass
    assert (ExecutionEngine.__init__, CompileOptions.apply_envar_settings, cute.runtime._Tensor.load_dltensor) == before


def test_no_driver_is_asked_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuTe DSL detects the GPU when its setting is read, which starts the driver: a forked worker dies of that."""
    from cutlass.base_dsl import env_manager
    from cutlass.cutlass_dsl import CuTeDSL

    def detect(_: str) -> str:
        raise AssertionError("the driver was asked")

    settings = CuTeDSL._get_dsl().envar
    monkeypatch.setattr(env_manager, "detect_gpu_arch", detect)
    monkeypatch.setattr(settings, "_arch", None)
    with emulated(arch="sm_90a"):
        assert settings.arch == "sm_90a"
    assert settings._arch is None
