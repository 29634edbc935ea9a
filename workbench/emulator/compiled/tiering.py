"""Which engine runs a launch: `engine="auto" | "numpy" | "compiled"`, else $CUTEGEN_EMULATOR_ENGINE, else auto.

"compiled" compiles a kernel before its first launch. "auto" uses code that is at hand (in memory or on disk) and
otherwise begins in the interpreter, unless a look at its loops says that compiling pays; once the interpreter has taken
as long as compiling would, or is seen to have that much left to do, the rest of the launch runs on compiled code. Both
leave kernels with an instruction that compiled code does not know to the interpreter. As the engines agree bit for bit,
when the change happens does not show in any result.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from workbench.emulator.compiled.codegen.cfg import Unsupported
from workbench.emulator.compiled.saved import Saved
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.execution.counters import Counting, Counts
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.ptx.instruction import Kernel
from workbench.errors import UserError

if TYPE_CHECKING:
    from workbench.emulator.compiled.engine import CompiledKernel

VARIABLE = "CUTEGEN_EMULATOR_ENGINE"
_INHERITED: list[str] = []
TRIPS = 16  # how often a loop is taken to run, where nothing is known
MARGIN = 1.0  # how many times longer than compiling the interpreter must seem to take for compiling to come first
ENGINES = ("auto", "numpy", "compiled")


def warm() -> None:
    """Load what compiled launches share, before a process is forked that may not read the disk; note the environment,
    which it loses.
    """
    _INHERITED[:] = [os.environ[VARIABLE]] if VARIABLE in os.environ else []
    with contextlib.suppress(ImportError, RuntimeError):
        from workbench.emulator.compiled import engine, jit
        from workbench.emulator.compiled.codegen import program

        if engine and program and jit.why_not() is None:
            jit.library()
            jit.numpy_loops()


def engine_name(engine: str | None) -> str:
    """The engine to use; UserError for a name that there is not."""
    name = engine or os.environ.get(VARIABLE) or (_INHERITED[-1] if _INHERITED else "auto")
    if name not in ENGINES:
        raise UserError(f"the emulator has no engine {name!r}: {', '.join(ENGINES)}")
    return name


class Native:
    """The compiled kernels of one module. `reasons` says, by kernel, why the interpreter runs it."""

    def __init__(self, ptx: str, engine: str | None, threads: int | None) -> None:
        self.engine = engine_name(engine)
        self.threads = threads or cores()
        self.reasons: dict[str, str] = {}
        self._ptx = ptx
        self._kernels: dict[str, CompiledKernel] = {}

    def find(self, kernel: Kernel, symbols: tuple[str, ...]) -> CompiledKernel | None:
        """A kernel's code if it is at hand, in memory or on disk."""
        if kernel.name in self.reasons or kernel.name in self._kernels:
            return self._kernels.get(kernel.name)
        try:
            from workbench.emulator.compiled import engine, jit
            from workbench.emulator.compiled.codegen import program

            missing = jit.why_not()
            found = None if missing else engine.cached(program.plan(kernel, symbols), self._name(kernel))
        except (ImportError, Unsupported, RuntimeError) as error:
            missing, found = str(error), None
        if missing:
            self.reasons[kernel.name] = missing
        if found is not None:
            self._kernels[kernel.name] = found
        return found

    def make(self, kernel: Kernel, symbols: tuple[str, ...]) -> CompiledKernel | None:
        """A kernel's code, compiled now if it must be; None, and a reason, when it cannot be."""
        found = self.find(kernel, symbols)
        if found is not None or kernel.name in self.reasons:
            return found
        from workbench.emulator.compiled import engine
        from workbench.emulator.compiled.codegen import program

        try:
            plan = program.plan(kernel, symbols)
            self._kernels[kernel.name] = engine.make(plan, program.translate(plan, cores()), self._name(kernel))
        except (Unsupported, RuntimeError) as reason:
            self.reasons[kernel.name] = f"not compiled: {reason}"
        return self._kernels.get(kernel.name)

    def _name(self, kernel: Kernel) -> str:
        from workbench.emulator.compiled import cache, jit

        return cache.key("kernel", jit.identity(), kernel.name, self._ptx)

    def compile_s(self, kernel: Kernel) -> float:
        """A guess at how long compiling would take."""
        from workbench.emulator.compiled import jit

        return jit.compile_s(len(kernel.instructions))


class TierSwitch:
    """One launch's change from the interpreter to compiled code: when to change, and from which CTA on."""

    def __init__(
        self,
        native: Native,
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
            (native.make if native.engine == "compiled" else native.find)(kernel, self.names) if self.open else None
        )
        self.open = self.open and kernel.name not in native.reasons
        self.patience = native.compile_s(kernel) if self.open and self.code is None else 0.0
        if self.open and self.code is None and self._guess() > MARGIN * self.patience:
            self._look(self.patience)
        self._before: tuple[Saved, Counts] | None = None

    def _guess(self) -> float:
        """Seconds that the interpreter seems to need: 15 us an instruction and 2.5 ns a lane (measured on an EPYC
        core).
        """
        bx, by, bz = self.request.block
        lanes = min(self.batch, self.total) * bx * by * bz
        batches = -(-self.total // self.batch)
        return batches * weight(self.kernel) * (15e-6 + 2.5e-9 * lanes)

    def run_rest(self, first: int) -> Stop | bool:
        """Run the CTAs from `first` on if there is code for them, see `CompiledKernel.run`."""
        if self.open and self.code is None and first:
            self._look((time.perf_counter() - self.began) / first * (self.total - first))
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

    def _look(self, seconds: float) -> None:
        """Compile when the interpreter has taken, or still needs, as long as that takes."""
        if seconds >= self.patience:
            self.code = self.native.make(self.kernel, self.names)
            self.open = self.code is not None

    def save(self) -> None:
        """Note the state before the first batch, which the interpreter may leave half done."""
        self._before = (Saved(self.memory), self.counting.snapshot()) if self.open else None

    def should_leave(self) -> bool:
        """Whether the interpreter should leave the batch that it is in, because there is code now."""
        if self._before is None:
            return False
        self._look(time.perf_counter() - self.began)
        if not self.open:
            self._before = None
        return self.code is not None

    def undo(self) -> None:
        """Go back to what `save` noted."""
        if self._before is not None:
            self._before[0].restore()
            self.counting.restore(self._before[1])
            self._before = None

    def finish_first(self) -> None:
        """The first batch is over."""
        self._before = None


def weight(kernel: Kernel) -> int:
    """Instructions of a kernel, those between a backward branch and its target counted as often as a loop is taken to
    run.
    """
    loops = [(ins.target, n) for n, ins in enumerate(kernel.instructions) if 0 <= ins.target <= n]
    inside = {at for first, last in loops for at in range(first, last + 1)}
    return len(kernel.instructions) + (TRIPS - 1) * len(inside)


def cores() -> int:
    """How many threads a launch may use."""
    return min(2, len(os.sched_getaffinity(0)))
