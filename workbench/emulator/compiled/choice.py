"""Which engine runs a launch: `engine="auto" | "numpy" | "compiled"`, else $CUTEGEN_EMULATOR_ENGINE, else auto.

"compiled" uses compiled code wherever there is any; "auto" also leaves launches to the interpreter that it ends before LLVM would have
compiled them. Both fall back to the interpreter for kernels with an instruction that compiled code does not know.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from workbench.emulator.compiled.stop import Stop
from workbench.emulator.counters import Counting
from workbench.emulator.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.ptx import Kernel
from workbench.errors import UserError

if TYPE_CHECKING:
    from workbench.emulator.compiled.engine import CompiledKernel

ENGINES = ("auto", "numpy", "compiled")


def chosen(engine: str | None) -> str:
    """The engine to use; UserError for a name that there is not."""
    name = engine or os.environ.get("CUTEGEN_EMULATOR_ENGINE") or "auto"
    if name not in ENGINES:
        raise UserError(f"the emulator has no engine {name!r}: {', '.join(ENGINES)}")
    return name


class Native:
    """The compiled kernels of one module. `reasons` says, by kernel, why the interpreter runs it."""

    def __init__(self, engine: str | None, threads: int | None) -> None:
        self.engine = chosen(engine)
        self.threads = threads
        self.reasons: dict[str, str] = {}
        self._kernels: dict[str, CompiledKernel] = {}

    def run(self, kernel: Kernel, request: GridRequest, limits: DeviceLimits, memory: GlobalMemory, symbols: dict[str, int], counting: Counting, batch: int) -> Stop | bool:
        """Run a launch on compiled code, see `CompiledKernel.run`; False when there is none."""
        if self.engine == "numpy" or request.cluster != (1, 1, 1) or kernel.name in self.reasons:
            return False
        code = self._kernels.get(kernel.name) or self._compile(kernel, tuple(sorted(symbols)))
        return code is not None and code.run(request, limits, memory, symbols, counting, batch, self.threads or cores())

    def _compile(self, kernel: Kernel, symbols: tuple[str, ...]) -> CompiledKernel | None:
        """Compile a kernel, or note why not."""
        try:
            from workbench.emulator.compiled import engine, flow, jit
        except ImportError as error:
            self.reasons[kernel.name] = f"llvmlite is missing: {error}"
            return None
        missing = jit.why_not()
        if missing:
            self.reasons[kernel.name] = missing
            return None
        try:
            self._kernels[kernel.name] = engine.CompiledKernel(kernel, symbols)
        except flow.Unsupported as reason:
            self.reasons[kernel.name] = f"not compiled: {reason}"
        return self._kernels.get(kernel.name)


def cores() -> int:
    """How many threads a launch may use."""
    return min(2, len(os.sched_getaffinity(0)))
