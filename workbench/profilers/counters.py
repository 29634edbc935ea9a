"""Emulator counters and the cubin's resources -> `records.Profile`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.analysis import devices
from workbench.analysis.devices import Device
from workbench.analysis.occupancy import ctas_by_resource, launch_occupancy
from workbench.analysis.time_model import estimate_time, fitted_model, terms
from workbench.analysis.time_model.machine_code import count_local_requests
from workbench.emulator.execution.counters import add_counts
from workbench.profilers import sass
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import (
    Facts,
    Finding,
    Job,
    KernelBuild,
    KernelMetrics,
    Launch,
    LineCounts,
    LineProfile,
    Outcome,
    Profile,
    Work,
)

WASTE = 1.2  # ratio of sectors or wavefronts to the ideal that is reported (KernelPro's trigger for uncoalesced access)
NEARLY = 0.999  # share of the least bytes below which the rest is explained
LOW_OCCUPANCY = 0.5  # KernelPro's trigger for the occupancy limiter


class CounterProfiler(Profiler):
    """Profiles from what the emulator counted; needs no GPU."""

    name = "counters"
    reads_emulation = True
    option_names = ("case",)  # "full" (the default) or "shrunk"

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def profile(self, job: Job, outcome: Outcome, context: RunContext = PLAIN, /) -> Profile:
        """The profile at the full case, counted on a few CTAs; where there was no run, or with the option
        case="shrunk", at the emulated case, counted on all. Findings are always those of the emulated case.
        """
        full = next((item for item in job.facts.work if item.case == "full"), None)
        findings = tuple(finding for launch in outcome.launches for finding in launch.findings)
        at_full_size = full is not None and context.options.get("case") != "shrunk" and outcome.full_launches
        if at_full_size:
            found = replace(outcome, launches=outcome.full_launches)
            made = _assemble(found, full, full, job.candidate.source, findings)
        else:
            work = next((item for item in job.facts.work if job.cases and item.case == job.cases[0]), None)
            made = _assemble(outcome, work, full, job.candidate.source, findings)
        case = "full" if at_full_size else job.cases[0] if job.cases else ""
        return replace(made, case=case, protections=outcome.protections)


def profile_full_size(facts: Facts, source: str, outcome: Outcome) -> Profile | None:
    """The profile of the call at the full case, from the CTAs that were followed there; None if there are none.

    Nothing is run: a test on the emulator has all that is needed but the machine code.
    """
    work = next((item for item in facts.work if item.case == "full"), None)
    if work is None or not outcome.full_launches:
        return None
    found = replace(outcome, launches=outcome.full_launches, builds=outcome.full_builds)
    findings = tuple(finding for launch in outcome.full_launches for finding in launch.findings)
    return replace(_assemble(found, work, work, source, findings), case=work.case)


def _assemble(
    outcome: Outcome, work: Work | None, full: Work | None, source: str, findings: tuple[Finding, ...]
) -> Profile:
    """The profile of `outcome.launches`, `work` being that of their case. Limits are those at the full case."""
    device = devices.find(outcome.device)
    builds = _index_builds(outcome)
    found = [(launch, launch_occupancy(launch, builds.get(launch.kernel), device)) for launch in outcome.launches]
    occupancy = tuple((launch.kernel, resident.fraction, resident.limiter) for launch, resident in found)
    limits = _limits(outcome, full) if full is not None and outcome.full_launches else ()
    kernels = _share_out_time(_kernels(outcome, builds, device, work), outcome.launches, builds, device, work)
    return Profile(
        launches=outcome.launches,
        builds=outcome.builds,
        occupancy=occupancy,
        limits=limits,
        findings=findings,
        summary=_summary(outcome.launches, limits, occupancy, findings),
        device=outcome.device,
        kernels=kernels,
        notes=_note_kept(kernels, work),
        lines=line_profiles(outcome, source),
    )


def _note_kept(kernels: Sequence[KernelMetrics], work: Work | None) -> tuple[str, ...]:
    """Why the launches move fewer bytes from and to DRAM than the problem's least, where they do."""
    moved = sum((kernel.dram_read_bytes or 0.0) + (kernel.dram_write_bytes or 0.0) for kernel in kernels)
    if work is None or not moved or moved > NEARLY * work.least_bytes:
        return ()
    return (
        f"DRAM moves {moved / work.least_bytes:.0%} of the problem's least bytes while the kernels run (modelled): "
        "the rest of what is written is in L2 at the end",
    )


def _index_builds(outcome: Outcome) -> dict[str, KernelBuild]:
    """Builds by kernel: those of the full case where it was built there too."""
    return {build.kernel: build for build in (*outcome.builds, *outcome.full_builds)}


def _limits(outcome: Outcome, full: Work) -> tuple[tuple[str, float], ...]:
    """Modelled seconds by resource at the full case, summed over launches, largest first."""
    device, builds = devices.find(outcome.device), {build.kernel: build for build in outcome.full_builds}
    total = terms.add_resource_seconds(outcome.full_launches, builds, device, full, fitted_model().constants)
    return tuple(sorted(total.items(), key=lambda item: -item[1]))


def _share_out_time(
    kernels: tuple[KernelMetrics, ...],
    launches: Sequence[Launch],
    builds: Mapping[str, KernelBuild],
    device: Device,
    work: Work | None,
) -> tuple[KernelMetrics, ...]:
    """The kernels with modelled times that add up to the time of the whole call, which a verdict states."""
    if work is None or len(kernels) < 2 or any(kernel.modelled_s is None for kernel in kernels):
        return kernels
    used = [builds[launch.kernel] for launch in launches if launch.kernel in builds]
    whole = estimate_time(launches, used, device, work).seconds
    factor = whole / sum(kernel.modelled_s or 0.0 for kernel in kernels)
    return tuple(
        replace(
            kernel,
            modelled_s=(kernel.modelled_s or 0.0) * factor,
            pipes=tuple((name, share / factor) for name, share in kernel.pipes),
        )
        for kernel in kernels
    )


def _summary(
    launches: Sequence[Launch],
    limits: Sequence[tuple[str, float]],
    occupancy: Sequence[tuple[str, float, str]],
    findings: Sequence[Finding],
) -> str:
    """One sentence: the limiting resource, and the counted reasons for it."""
    if not launches:
        return "no CuTe DSL kernel was launched"
    said = [f"{len(launches)} kernel launch{'es' if len(launches) > 1 else ''}"]
    if limits:
        said[0] += f", limited by {limits[0][0]} (modelled)"
    busiest = max(range(len(launches)), key=lambda n: launches[n].total.instructions)
    said += [*describe_waste(launches[busiest].total)]
    _, fraction, limiter = occupancy[busiest]
    if fraction < LOW_OCCUPANCY:
        said.append(f"{fraction:.0%} occupancy, limited by {limiter}")
    if findings:
        said.append(f"{len(findings)} finding{'s' if len(findings) != 1 else ''}")
    return "; ".join(said)


def describe_waste(total: LineCounts) -> tuple[str, ...]:
    """Phrases for counted sectors and wavefronts that are WASTE times the ideal or more."""
    pairs = (
        ("sectors", total.global_sectors, total.global_ideal_sectors),
        ("shared-memory wavefronts", total.shared_wavefronts, total.shared_ideal_wavefronts),
    )
    return tuple(
        f"{used / ideal:.1f}x the ideal {name}" for name, used, ideal in pairs if ideal and used / ideal > WASTE
    )


def _kernels(
    outcome: Outcome, builds: Mapping[str, KernelBuild], device: Device, work: Work | None
) -> tuple[KernelMetrics, ...]:
    """For each launch its counts; if its CTAs were followed in time, a modelled time too."""
    shares = terms.traffic_shares(outcome.launches)
    return tuple(
        _metrics(launch, builds.get(launch.kernel), device, work, share)
        for launch, share in zip(outcome.launches, shares, strict=True)
    )


def _metrics(
    launch: Launch, build: KernelBuild | None, device: Device, work: Work | None, share: float
) -> KernelMetrics:
    counted = _counted_metrics(launch, build, device)
    if work is None:
        return counted
    if launch.paced is None:
        return replace(
            counted, l2_bytes=32.0 * launch.total.global_sectors, dram_read_bytes=float(work.least_bytes) * share
        )
    parts = terms.resource_seconds(launch, build, device, work, fitted_model().constants, share)
    one = replace(work, least_bytes=round(work.least_bytes * share))
    seconds = estimate_time((launch,), (build,) if build else (), device, one).seconds
    ctas = math.prod(launch.grid) / launch.paced.ctas
    read, written = terms.find_dram_bytes(launch, work, share, device)
    asked = launch.paced.l1_sectors
    pipes = ((name, part / seconds) for name, part in parts.items() if seconds and part)
    return replace(
        counted,
        l2_bytes=32.0 * ((launch.paced.l1_missed + launch.paced.written) * ctas + terms.bypassing_sectors(launch)),
        dram_read_bytes=read,
        dram_write_bytes=written,
        l1_hit_rate=1 - launch.paced.l1_missed / asked if asked else None,
        modelled_s=seconds,
        pipes=tuple(sorted(pipes, key=lambda item: -item[1])),
        stalls=launch.paced.waits,
        local_requests=count_local_requests(launch, build) * math.prod(launch.grid),
        active_threads=launch.paced.active_threads,
        wgmma=launch.paced.wgmma,
    )


def _counted_metrics(launch: Launch, build: KernelBuild | None, device: Device) -> KernelMetrics:
    """Counts and occupancy of a launch, without any model of time."""
    total = launch.total
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = build.static_shared_bytes if build else 0
    resident = launch_occupancy(launch, build, device)
    allowed = ctas_by_resource(
        device,
        threads=threads,
        registers=build.registers if build else None,
        shared_bytes=launch.dynamic_shared_bytes + shared,
    )
    return KernelMetrics(
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        provenance="counted",
        flops=float(total.flops),
        l1_bytes=32.0 * total.global_sectors,
        shared_bytes=128.0 * total.shared_wavefronts,
        shared_wavefronts=float(total.shared_wavefronts),
        shared_bank_conflicts=float(max(total.shared_wavefronts - total.shared_ideal_wavefronts, 0)),
        warp_instructions=total.instructions / 32,
        theoretical_occupancy=resident.fraction,
        limiter=resident.limiter,
        limits=tuple((name, float(blocks)) for name, blocks in allowed.items()),
        registers=build.registers if build else None,
        static_shared_bytes=float(shared),
        dynamic_shared_bytes=float(launch.dynamic_shared_bytes),
        l2_hit_rate=launch.l2.hit_rate if launch.l2 is not None else None,
        waves=math.prod(launch.grid) / (device.sms * max(resident.blocks, 1)),
        l1_requests=float(total.global_requests),
        l1_ideal_bytes=sum(map(ideal_bytes, launch.lines or (total,))),
        shared_ideal_wavefronts=float(total.shared_ideal_wavefronts),
        tensor_flops=tuple((dtype, float(flops)) for dtype, flops in launch.tensor_flops),
        async_copies=any(name == "async copy" for name, _ in launch.classes),
        cluster=math.prod(launch.cluster),
        integer_share=_integer_share(launch),
    )


def ideal_bytes(counts: LineCounts) -> float:
    """The bytes of global memory that a line's warps ask for. What several threads ask for at once counts by sectors,
    so that it counts once; a sector of which a lone thread takes a part counts by that part.
    """
    return float(min(counts.global_read_bytes + counts.global_write_bytes, 32 * counts.global_ideal_sectors))


def _integer_share(launch: Launch) -> float | None:
    """The share of integer, move and branch instructions among all thread-instructions."""
    whole = sum(count for _, count in launch.classes)
    return sum(count for name, count in launch.classes if name in ("int", "move", "branch")) / whole if whole else None


def line_profiles(outcome: Outcome, source: str) -> tuple[LineProfile, ...]:
    """Machine instructions of the SASS, executed instructions (counted) and waiting cycles (modelled), by line."""
    executed: Counter[int] = Counter()
    waits: dict[int, float] = {}
    memory: dict[int, LineCounts] = {}
    for launch in outcome.launches:
        for line in launch.lines:
            executed[line.line] += line.instructions
            memory[line.line] = add_counts(memory[line.line], line) if line.line in memory else line
        for number, cycles in launch.paced.stalls if launch.paced else ():
            waits[number] = waits.get(number, 0.0) + cycles
    known = {item.line: item for item in sass.source_lines(outcome.builds, source)}
    texts = source.splitlines()
    return tuple(
        replace(
            _add_memory(known.get(number) or LineProfile(line=number, text=_text(texts, number)), memory.get(number)),
            executed=executed[number] / 32 if number in executed else None,
            stalls=(("waiting", waits[number]),) if waits.get(number) else (),
            stall_unit="modelled cycles",
        )
        for number in sorted({*known, *executed, *waits})
    )


def _text(texts: Sequence[str], number: int) -> str:
    return texts[number - 1].strip() if 0 < number <= len(texts) else ""


def _add_memory(line: LineProfile, counts: LineCounts | None) -> LineProfile:
    """The line with what its accesses to memory count."""
    if counts is None:
        return line
    if counts.global_requests:
        line = replace(line, sectors=float(counts.global_sectors), ideal_sectors=ideal_bytes(counts) / 32)
    if counts.shared_requests:
        line = replace(
            line,
            wavefronts=float(counts.shared_wavefronts),
            ideal_wavefronts=float(counts.shared_ideal_wavefronts),
        )
    return replace(line, stored_bytes=float(counts.global_write_bytes)) if counts.global_write_bytes else line
