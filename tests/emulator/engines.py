"""Runs launches on both engines and compares everything: memory, shadows, counters, faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine
from workbench.emulator.sanitizer.launch_order import OrderedLaunch
from workbench.records import Failure, Finding, Launch

HEAD = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(
 .param .u64 k_param_0,
 .param .u32 k_param_1
)
{
.reg .pred %p<99>;
.reg .b16 %rs<99>;
.reg .b32 %r<99>;
.reg .f32 %f<99>;
.reg .b64 %rd<99>;
.reg .f64 %fd<99>;
.shared .align 16 .b8 sm[4096];
"""
START = """ld.param.u64 %rd1, [k_param_0];
ld.param.u32 %r1, [k_param_1];
mov.u32 %r2, %tid.x;
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x;
mad.lo.s32 %r5, %r3, %r4, %r2;
mul.wide.u32 %rd2, %r5, 4;
add.s64 %rd3, %rd1, %rd2;
"""


@dataclass
class Ran:
    """What one engine left behind."""

    launch: Launch | None = None
    failure: tuple[Failure, Finding | None] | None = None
    memory: list[bytes] = field(default_factory=list)


@dataclass
class Comparison:
    """How often launches agreed, and why any were not compiled."""

    compiled: int = 0
    reasons: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def on(engine: str, run: Callable[[], Launch], memory: GlobalMemory) -> Ran:
    """Run and note the result; memory is put back as it was."""
    parts = [part for entry in memory.allocations for part in (entry.data, entry.written) if part is not None]
    before = [part.copy() for part in parts]
    result = Ran()
    try:
        result.launch = run()
    except EmulationFault as fault:
        result.failure = (fault.failure, fault.finding)
    result.memory = [part.tobytes() for part in parts]
    for part, old in zip(parts, before, strict=True):
        part[:] = old
    return result


def compare(
    machine: Machine, request: GridRequest, memory: GlobalMemory, run: Callable[..., Launch] = Machine.run
) -> tuple[Ran, Ran]:
    """The launch on (numpy, compiled)."""
    native, results = machine.native, []
    was = native.engine
    for engine in ("numpy", "compiled"):
        native.engine = engine
        results.append(on(engine, lambda: run(machine, request, memory), memory))
    native.engine = was
    return results[0], results[1]


def difference(a: Ran, b: Ran) -> str:
    """What differs, empty when nothing does; memory after a fault does not count."""
    if a.failure != b.failure:
        return f"failures: {a.failure} and {b.failure}"
    if a.launch != b.launch:
        return f"counters: {a.launch and a.launch.total} and {b.launch and b.launch.total}"
    return "memory" if a.failure is None and a.memory != b.memory else ""


@contextmanager
def both_engines(monkeypatch) -> Iterator[Comparison]:
    """While active, every launch of any program runs on both engines; the caller looks at the comparison."""
    found, plain = Comparison(), Machine.run

    def run(self: Machine, request: GridRequest, memory: GlobalMemory, order: OrderedLaunch | None = None) -> Launch:
        a, b = compare(self, request, memory, plain)
        if request.entry in self.native.reasons:
            found.reasons.append(self.native.reasons[request.entry])
        else:
            found.compiled += 1
        if said := difference(a, b):
            found.differences.append(f"{request.entry}: {said}")
        self.native.engine = "numpy"
        return plain(self, request, memory, order)

    with monkeypatch.context() as patch:
        patch.setattr(Machine, "run", run)
        yield found


def aligned(count: int) -> np.ndarray:
    """Zeros at a multiple of 256 bytes, as device allocations are."""
    raw = np.zeros(4 * count + 256, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + 4 * count].view(np.uint32)


def assembled(body: str) -> Machine:
    """A kernel k(data, value) around `body`; %r5 is the thread's number, %rd3 its element's address."""
    return Machine(HEAD + START + body + "\nret;\n}\n", DeviceLimits())


def launch(
    machine: Machine,
    data: np.ndarray,
    *,
    grid: int = 1,
    block: int = 32,
    value: int = 0,
    written: np.ndarray | None = None,
    steps: int = 10_000_000,
    dynamic: int = 0,
) -> tuple[Ran, Ran]:
    """Run `k` on both engines."""
    memory = GlobalMemory()
    address = data.ctypes.data
    memory.register(address, data.nbytes, "data", written=written)
    params = (address.to_bytes(8, "little"), value.to_bytes(4, "little"))
    request = GridRequest(
        entry="k", grid=(grid, 1, 1), block=(block, 1, 1), params=params, step_limit=steps, dynamic_shared_bytes=dynamic
    )
    return compare(machine, request, memory)
