"""Launches that overlap on a GPU: dependent ones that do not wait, chains of them, and two streams without an event."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

from workbench.emulator import EmulationFault, emulated

N, THREADS = 512, 128
# who calls griddepcontrol.wait in a kernel: nobody, all threads, thread 0 before a barrier, thread 0 without one
NOBODY, ALL, FIRST_THEN_BARRIER, FIRST_ONLY = range(4)


@cute.kernel
def scale(x: cute.Tensor, y: cute.Tensor, wait: cutlass.Constexpr, trigger: cutlass.Constexpr) -> None:
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    if cutlass.const_expr(trigger):
        cute.arch.griddepcontrol_launch_dependents()
    if cutlass.const_expr(wait == ALL):
        cute.arch.griddepcontrol_wait()
    elif cutlass.const_expr(wait != NOBODY):
        if thread < 32:
            cute.arch.griddepcontrol_wait()
        if cutlass.const_expr(wait == FIRST_THEN_BARRIER):
            cute.arch.sync_threads()
    y[block * THREADS + thread] = x[block * THREADS + thread] * 2.0


@cute.jit
def two(
    x: cute.Tensor, h: cute.Tensor, y: cute.Tensor, wait: cutlass.Constexpr, pdl: cutlass.Constexpr,
    trigger: cutlass.Constexpr,
) -> None:  # fmt: skip
    grid = (N // THREADS, 1, 1)
    scale(x, h, NOBODY, trigger).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=pdl)
    scale(h, y, wait, False).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=pdl)


@cute.jit
def three(x: cute.Tensor, h: cute.Tensor, z: cute.Tensor, y: cute.Tensor, middle: cutlass.Constexpr) -> None:
    grid = (N // THREADS, 1, 1)
    scale(x, h, NOBODY, True).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=True)
    scale(x, z, middle, False).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=True)
    scale(h, y, ALL, False).launch(grid=grid, block=(THREADS, 1, 1), use_pdl=True)


@cute.jit
def one(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream) -> None:
    scale(x, y, NOBODY, False).launch(grid=(N // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)


def run(function: Any, count: int, *constants: Any, overwrite: bool = False) -> None:
    with emulated(arch="sm_90a"):
        tensors = [torch.randn(N), *(torch.zeros(N) for _ in range(count - 1))]
        if overwrite:  # the second kernel reads something else, and writes what the first one reads
            tensors[1:] = [torch.zeros(N), tensors[0]]
        x = tensors[0].clone()
        function(*(from_dlpack(tensor) for tensor in tensors), *constants)
        if not overwrite:
            torch.testing.assert_close(tensors[-1], 4 * x)


def fault_of(function: Any, count: int, *constants: Any, overwrite: bool = False) -> str:
    with pytest.raises(EmulationFault) as caught:
        run(function, count, *constants, overwrite=overwrite)
    failure = caught.value.failure
    assert failure.kind == "launch_order" and failure.line == scale_line()
    return failure.message


def scale_line() -> int:
    with open(__file__) as source:
        return 1 + next(n for n, line in enumerate(source) if line.startswith("    y[block"))


@pytest.mark.parametrize("wait", [ALL, FIRST_THEN_BARRIER])
def test_a_dependent_launch_that_waits_is_not_suspected(wait: int) -> None:
    run(two, 3, wait, True, True)


@pytest.mark.parametrize("wait", [NOBODY, FIRST_ONLY])
@pytest.mark.parametrize("trigger", [True, False])
def test_a_dependent_launch_that_does_not_wait_is_found_on_its_line(wait: int, trigger: bool) -> None:
    message = fault_of(two, 3, wait, True, trigger)
    assert "is read too early" in message and "(scale) writes it" in message
    assert ("after its launch_dependents" in message) == trigger


def test_without_the_attribute_a_launch_waits_by_itself() -> None:
    run(two, 3, NOBODY, False, True)


def test_overwriting_what_the_predecessor_reads_is_found() -> None:
    message = fault_of(two, 3, NOBODY, True, True, overwrite=True)
    assert "too early" in message


def test_a_wait_covers_only_kernels_that_were_waited_for_in_turn() -> None:
    assert "no kernel after it waited for it" in fault_of(three, 4, NOBODY)
    run(three, 4, ALL)


def use_streams(order: str) -> None:
    """A kernel on one stream, and one on another that reads its result."""
    with emulated(arch="sm_90a", cuda=True):
        x, h, y = (torch.ones(N, device="cuda") for _ in range(3))
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        one(from_dlpack(x), from_dlpack(h), cuda.CUstream(first.cuda_stream))
        if order == "event":
            event = torch.cuda.Event()
            event.record(first)
            second.wait_event(event)
        elif order == "stream":
            second.wait_stream(first)
        elif order == "host":
            torch.cuda.synchronize()
        elif order == "early event":
            torch.cuda.Event().record(second)
            second.wait_event(torch.cuda.Event())
        one(from_dlpack(h), from_dlpack(y), cuda.CUstream((first if order == "same" else second).cuda_stream))
        assert float(y.sum()) == 4 * N


@pytest.mark.parametrize("order", ["event", "stream", "host", "same"])
def test_streams_that_wait_are_not_suspected(order: str) -> None:
    use_streams(order)


@pytest.mark.parametrize("order", ["nothing", "early event"])
def test_two_streams_without_an_event_between_are_found(order: str) -> None:
    with pytest.raises(EmulationFault, match="another stream, with no event between"):
        use_streams(order)
