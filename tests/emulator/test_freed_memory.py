"""Tensors that die while a launch runs, as those in cycles do when Python collects garbage: their memory belongs to
others then, and nothing may be written to it.
"""

from __future__ import annotations

import gc

import pytest
import torch
from cutlass.cute.runtime import from_dlpack
from test_hook_cute import add, operands

from workbench.emulator import emulated
from workbench.emulator.compiled import engine
from workbench.emulator.compiled.saved import MemorySnapshot
from workbench.emulator.execution.launch import EmulationFault, GlobalMemory
from workbench.emulator.host.dlpack import AllocationWatch
from workbench.emulator.origins import storage_range

SIZE = 1 << 12


class Cycle:
    """Keeps a tensor alive until garbage is collected."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.own = tensor, self


def test_memory_that_is_put_back_is_not_that_of_a_tensor_freed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.Tensor] = []

    class Snapshot(MemorySnapshot):
        def __init__(self, memory: GlobalMemory) -> None:
            super().__init__(memory)
            gc.collect()
            taken.extend(torch.full((SIZE,), 7.0) for _ in range(64))  # where the freed one was, if it is

    monkeypatch.setattr(engine, "MemorySnapshot", Snapshot)
    monkeypatch.setenv("CUTEGEN_EMULATOR_ENGINE", "compiled")
    with emulated(counters=False) as emulation:
        x, y, z = operands(SIZE)
        add(from_dlpack(x), from_dlpack(y), from_dlpack(z), SIZE)
        taken.clear()
        before = storage_range(x)[0]
        gc.collect()
        gc.disable()
        try:
            Cycle(x)
            small = [torch.zeros(128) for _ in range(3)]
            del x
            with pytest.raises(EmulationFault):  # compiled code gives up, and memory is put back for the interpreter
                add(*map(from_dlpack, small), 256)
        finally:
            gc.enable()
    assert taken and all(bool((tensor == 7.0).all()) for tensor in taken)
    assert before not in [found.start for found in emulation.tags.alive_ranges()]  # it dies with the launch


def test_the_shadow_of_a_freed_storage_is_not_that_of_the_next_one() -> None:
    watch = AllocationWatch()
    with watch:
        tensor = torch.empty(64)
    start, size = storage_range(tensor)
    shadow = watch.written_shadow(start, size)
    assert shadow is not None and len(shadow) == size and watch.count_unwritten_bytes(tensor) == size
    assert watch.written_shadow(start, 2 * size) is None
    del tensor
    assert watch.written_shadow(start, size) is None
