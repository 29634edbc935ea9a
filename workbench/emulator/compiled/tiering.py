"""Chooses the engine of a launch: `engine="auto" | "numpy" | "compiled"`, else $CUTEGEN_EMULATOR_ENGINE, else auto.

"compiled" compiles a kernel before its first launch. "auto" uses code that is in memory or on disk. Otherwise it begins
in the interpreter, unless the kernel's loops suggest that compiling is faster. When the interpreter has taken as long
as compiling would, or seems to need that much longer, the rest of the launch runs on compiled code. Both leave kernels
with an instruction that compiled code does not support to the interpreter. The engines agree bit for bit, so the time
of the change does not affect any result.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.saved import MemorySnapshot
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.execution.counters import Counting, Counts
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.ptx.instruction import Kernel
from workbench.errors import UserError

if TYPE_CHECKING:
    from workbench.emulator.compiled.engine import CompiledKernel

VARIABLE = "CUTEGEN_EMULATOR_ENGINE"
_INHERITED: list[str] = []
TRIPS = 16  # assumed number of iterations of a loop
MARGIN = 1.0  # compile first if the interpreter's estimate is over this factor times the compile time
ENGINES = ("auto", "numpy", "compiled")


def preload() -> None:
    """Load the common parts of compiled launches before a process is forked that may not read the disk, and store the
    environment, which that process loses.
    """
    _INHERITED[:] = [os.environ[VARIABLE]] if VARIABLE in os.environ else []
    with contextlib.suppress(ImportError, RuntimeError):
        from workbench.emulator.compiled import engine, jit
        from workbench.emulator.compiled.codegen import program

        if engine and program and jit.missing_support() is None:
            jit.load_library()
            jit.numpy_loops()


def resolve_engine(engine: str | None) -> str:
    """The name of the engine to use; raises UserError for an unknown one."""
    name = engine or os.environ.get(VARIABLE) or (_INHERITED[-1] if _INHERITED else "auto")
    if name not in ENGINES:
        raise UserError(f"the emulator has no engine {name!r}: {', '.join(ENGINES)}")
    return name


class NativeKernels:
    """The compiled kernels of one module. `reasons` says, by kernel, why the interpreter runs it."""

    def __init__(self, ptx: str, engine: str | None, threads: int | None) -> None:
        self.engine = resolve_engine(engine)
        self.threads = threads or core_count()
        self.reasons: dict[str, str] = {}
        self._ptx = ptx
        self._kernels: dict[str, CompiledKernel] = {}

    def find(self, kernel: Kernel, symbols: tuple[str, ...]) -> CompiledKernel | None:
        """A kernel's code if it is in memory or on disk."""
        if kernel.name in self.reasons or kernel.name in self._kernels:
            return self._kernels.get(kernel.name)
        try:
            from workbench.emulator.compiled import engine, jit
            from workbench.emulator.compiled.codegen import program

            missing = jit.missing_support()
            found = (
                None if missing else engine.load_cached(program.plan_program(kernel, symbols), self._cache_key(kernel))
            )
        except (ImportError, Unsupported, RuntimeError) as error:
            missing, found = str(error), None
        if missing:
            self.reasons[kernel.name] = missing
        if found is not None:
            self._kernels[kernel.name] = found
        return found

    def find_or_compile(self, kernel: Kernel, symbols: tuple[str, ...]) -> CompiledKernel | None:
        """A kernel's code, compiled now if necessary; None, with an entry in `reasons`, if it cannot be compiled."""
        found = self.find(kernel, symbols)
        if found is not None or kernel.name in self.reasons:
            return found
        from workbench.emulator.compiled import engine
        from workbench.emulator.compiled.codegen import program

        try:
            plan = program.plan_program(kernel, symbols)
            self._kernels[kernel.name] = engine.build(
                plan, program.translate_program(plan, core_count()), self._cache_key(kernel)
            )
        except (Unsupported, RuntimeError) as reason:
            self.reasons[kernel.name] = f"not compiled: {reason}"
        return self._kernels.get(kernel.name)

    def _cache_key(self, kernel: Kernel) -> str:
        from workbench.emulator.compiled import cache, jit

        return cache.make_key("kernel", jit.identity(), kernel.name, self._ptx)

    def estimate_compile_s(self, kernel: Kernel) -> float:
        """Estimated seconds to compile a kernel."""
        from workbench.emulator.compiled import jit

        return jit.estimate_compile_s(len(kernel.instructions))


class TierSwitch:
    """Changes one launch from the interpreter to compiled code."""

    def __init__(
        self,
        native: NativeKernels,
        kernel: Kernel,
        request: GridRequest,
        limits: DeviceLimits,
        memory: GlobalMemory,
        symbols: dict[str, int],
        counting: Counting,
        batch: int,
    ) -> None:
        self.native, self.kernel, self.request, self.limits, self.memory, self.symbols, self.counting, self.batch = (
            native,
            kernel,
            request,
            limits,
            memory,
            symbols,
            counting,
            batch,
        )
        self.total = request.grid[0] * request.grid[1] * request.grid[2]
        self.began = time.perf_counter()
        self.names = tuple(sorted(symbols))
        self.open = native.engine != "numpy" and request.cluster == (1, 1, 1) and kernel.name not in native.reasons
        self.code = (
            (native.find_or_compile if native.engine == "compiled" else native.find)(kernel, self.names)
            if self.open
            else None
        )
        self.open = self.open and kernel.name not in native.reasons
        self.patience = native.estimate_compile_s(kernel) if self.open and self.code is None else 0.0
        if self.open and self.code is None and self._estimate_interpreter_s() > MARGIN * self.patience:
            self._compile_if_worthwhile(self.patience)
        self._before: tuple[MemorySnapshot, Counts] | None = None

    def _estimate_interpreter_s(self) -> float:
        """Estimated seconds of the interpreter: 15 us an instruction and 2.5 ns a lane (measured on an EPYC core)."""
        bx, by, bz = self.request.block
        lanes = min(self.batch, self.total) * bx * by * bz
        batches = -(-self.total // self.batch)
        return batches * instruction_weight(self.kernel) * (15e-6 + 2.5e-9 * lanes)

    def run_rest(self, first: int) -> Stop | bool:
        """Run the CTAs from `first` on if there is code for them; see `CompiledKernel.run`."""
        if self.open and self.code is None and first:
            self._compile_if_worthwhile((time.perf_counter() - self.began) / first * (self.total - first))
        if self.code is None:
            return False
        ended = self.code.run(
            self.request,
            self.limits,
            self.memory,
            self.symbols,
            self.counting,
            first=first,
            batch=self.batch,
            threads=self.native.threads,
        )
        self.code, self.open = None, False
        return ended

    def _compile_if_worthwhile(self, seconds: float) -> None:
        """Compile if the interpreter has taken, or still needs, these seconds and compiling takes no longer."""
        if seconds >= self.patience:
            self.code = self.native.find_or_compile(self.kernel, self.names)
            self.open = self.code is not None

    def save(self) -> None:
        """Store the state before the first batch, which the interpreter may leave half done."""
        self._before = (MemorySnapshot(self.memory), self.counting.snapshot()) if self.open else None

    def should_leave(self) -> bool:
        """Whether the interpreter should leave its batch because code is ready now."""
        if self._before is None:
            return False
        self._compile_if_worthwhile(time.perf_counter() - self.began)
        if not self.open:
            self._before = None
        return self.code is not None

    def undo(self) -> None:
        """Restore the state of `save`."""
        if self._before is not None:
            self._before[0].restore()
            self.counting.restore(self._before[1])
            self._before = None

    def finish_first(self) -> None:
        """The first batch has ended: drop the stored state."""
        self._before = None


def instruction_weight(kernel: Kernel) -> int:
    """Number of instructions of a kernel; those of a loop count once for each assumed iteration."""
    loops = [(ins.target, n) for n, ins in enumerate(kernel.instructions) if 0 <= ins.target <= n]
    inside = {at for first, last in loops for at in range(first, last + 1)}
    return len(kernel.instructions) + (TRIPS - 1) * len(inside)


def core_count() -> int:
    """The number of threads that a launch may use."""
    return min(2, len(os.sched_getaffinity(0)))
