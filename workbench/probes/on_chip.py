"""Probes of what an SM holds: banks of shared memory, occupancy, registers, spilled registers."""

from __future__ import annotations

from workbench.probes.base import (
    LESS,
    MORE,
    OTHER,
    KernelProbe,
    excess_wavefronts,
    most_waited,
    moves,
    spread_rows,
    worst_access,
)
from workbench.probes.signals import LATENCY, LOW_OCCUPANCY, MANY_REGISTERS, SPILLED, Signals
from workbench.records import Advice, Bound, Measure, Profile

CONFLICTS = 1.2  # wavefronts over the least (as for sectors; inferred)
BUSY = 0.8  # a resource that is busy for this share needs no more warps (a rule of NVIDIA's tools)
SLOWER = 8.0  # a local access waits so many times as long as arithmetic: 33 cycles of L1 against 4


class BankConflicts(KernelProbe):
    """Do the threads of a warp use different banks of shared memory?"""

    name = "bank_conflicts"
    question = "Do the threads of a warp use different banks of shared memory?"

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: wavefronts over CONFLICTS times the least for the widths of the accesses."""
        used = kernel.metrics.shared_wavefronts
        conflicts = kernel.metrics.shared_bank_conflicts
        if not used or not conflicts or used / max(used - conflicts, 1.0) <= CONFLICTS:
            return None
        ratio = used / max(used - conflicts, 1.0)
        waits = kernel.explained_waiting("shared memory")
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({"shared memory": 1 / ratio, LATENCY: max(1 - waits * (1 - 1 / ratio), 0.5)}),
            cause=f"accesses to shared memory take {ratio:.1f}x the wavefronts that their bytes need",
            action="swizzle the shared-memory layout, or pad its rows: a warp's accesses fall on different banks",
            evidence=(Measure(name="wavefronts over the least", value=ratio, limit=CONFLICTS, unit="x"),),
            changes=moves(("stages", MORE), ("vector", OTHER)),  # stages are swizzled; tiles helped in no direction
            line=worst_access(profile.lines, excess_wavefronts, source),
            pattern="swizzled shared memory layout atom",
        )


class OccupancyLimiter(KernelProbe):
    """Are there enough warps to hide latency?"""

    name = "occupancy"
    question = "Are enough warps resident to hide latency, and what limits them?"
    classes = frozenset({"latency", "memory"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: occupancy under LOW_OCCUPANCY while no unit is busy for BUSY of the time; not for wgmma, which needs
        few.
        """
        resident = kernel.metrics.achieved_occupancy or kernel.metrics.theoretical_occupancy
        if resident is None or resident >= LOW_OCCUPANCY or kernel.busiest[1] >= BUSY or kernel.metrics.wgmma:
            return None
        if kernel.on_slow_path:
            return None
        if (kernel.metrics.waves or 0.0) < 1:  # too few CTAs: `underfilled`
            return None
        limiter = kernel.metrics.limiter
        if limiter == "registers" and (kernel.metrics.registers or 0) > MANY_REGISTERS:  # `register_pressure` says more
            return None
        change = {
            "registers": (("thread_tile", LESS), ("unroll", LESS), ("kept", LESS), ("vector", LESS), ("threads", LESS)),
            "shared memory": (("stages", LESS), ("tile", LESS), ("kept", LESS)),
            "threads": (("threads", OTHER), ("threads_per_row", OTHER)),
        }.get(limiter, (("threads", MORE), ("threads_per_row", MORE)))
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: max(resident / LOW_OCCUPANCY, 0.5)}),
            cause=f"{resident:.0%} of an SM's threads are resident, limited by {limiter or 'the grid'}, and warps wait",
            action=f"use less of the limiting resource ({limiter or 'CTAs'}), or give each warp more independent work",
            evidence=(Measure(name="occupancy", value=resident, limit=LOW_OCCUPANCY, unit="%"),),
            changes=moves(*change),
            line=most_waited(profile.lines, "long_scoreboard"),
            pattern="launch bounds occupancy registers",
        )


class RegisterPressure(KernelProbe):
    """Do registers keep warps off the SM?"""

    name = "register_pressure"
    question = "Do registers keep warps off the SM?"
    classes = frozenset({"latency", "memory", "compute"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: over MANY_REGISTERS registers a thread, which limit occupancy, while warps wait; not for wgmma."""
        if not kernel.pressed or kernel.busiest[1] >= BUSY or kernel.on_slow_path:
            return None
        registers, resident = kernel.metrics.registers or 0, kernel.metrics.theoretical_occupancy or 0.0
        fewer = MANY_REGISTERS / registers
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: max(fewer, 0.5)}),
            cause=f"{registers} registers a thread leave room for {resident:.0%} of an SM's threads",
            action="keep fewer values alive: smaller thread tiles, less unrolling, or data in shared memory",
            evidence=(
                Measure(name="registers a thread", value=float(registers), limit=float(MANY_REGISTERS)),
                Measure(name="occupancy", value=resident, limit=LOW_OCCUPANCY, unit="%"),
            ),
            changes=moves(
                *(("thread_tile", LESS), ("unroll", LESS), ("kept", LESS)), *spread_rows(kernel), ("vector", LESS)
            ),
            line=most_waited(profile.lines, "long_scoreboard"),
            pattern="accumulator fragment register tile",
        )


class RegisterSpills(KernelProbe):
    """Do values go through local memory?"""

    name = "register_spills"
    question = "Do registers spill to local memory?"

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: local accesses over SPILLED of the warp-instructions, in the machine code or by its counters."""
        share = kernel.spilled
        if share <= SPILLED:
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(
                {"L1": 0.5, "L2": 0.5, "DRAM": 0.8, LATENCY: max(1 - SLOWER * share, 0.3), "issue": 1 - share}
            ),
            cause=f"{share:.0%} of the instructions move spilled registers to and from local memory",
            action="keep fewer values alive in a thread: smaller tiles, less unrolling, more threads for a row",
            evidence=(Measure(name="local accesses per instruction", value=share, limit=SPILLED, unit="%"),),
            changes=moves(
                ("kept", LESS),
                ("thread_tile", LESS),
                ("unroll", LESS),
                ("threads_per_row", MORE),
                ("vector", LESS),
                ("tile", LESS),
                ("threads", LESS),
            ),
            line=most_waited(profile.lines, "lg_throttle", "long_scoreboard"),
            pattern="register fragment smaller tile",
        )
