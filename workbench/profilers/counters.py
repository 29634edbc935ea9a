"""Emulator counters and the cubin's resources -> `records.Profile`."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis import devices, model
from workbench.records import Finding, Job, KernelBuild, Launch, LineCounts, Outcome, Profile

WASTE = 1.2  # sectors or wavefronts over ideal that are worth a word (KernelPro's trigger for uncoalesced access, section 3.2 in our notes)
LOW_OCCUPANCY = 0.5  # KernelPro's trigger for the occupancy limiter


class CounterProfiler:
    """Profiles from what the emulator counted; needs no GPU."""

    name = "counters"

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def profile(self, job: Job, outcome: Outcome, /) -> Profile:
        """Occupancy per kernel, modelled seconds by resource at the full case, advice, and a sentence that sums it up."""
        device = devices.find(outcome.device)
        builds = {build.kernel: build for build in outcome.builds}
        found = [(launch, model.resident(launch, builds.get(launch.kernel), device)) for launch in outcome.launches]
        occupancy = tuple((launch.kernel, resident.fraction, resident.limiter) for launch, resident in found)
        limits = _limits(job, outcome, builds)
        findings = tuple(finding for launch in outcome.launches for finding in launch.findings)
        summary = _summary(outcome.launches, limits, occupancy, findings)
        return Profile(launches=outcome.launches, builds=outcome.builds, occupancy=occupancy, limits=limits, findings=findings, summary=summary)


def _limits(job: Job, outcome: Outcome, builds: dict[str, KernelBuild]) -> tuple[tuple[str, float], ...]:
    """Modelled seconds by resource at the full case, summed over the launches, largest first."""
    work = {item.case: item for item in job.facts.work}
    emulated, full = work.get(job.cases[0] if job.cases else ""), work.get("full")
    if emulated is None or full is None:
        return ()
    device, scale = devices.find(outcome.device), model.scale_of(emulated, full, len(outcome.launches))
    total: dict[str, float] = {}
    for launch in outcome.launches:
        for name, seconds in model.terms(launch, builds.get(launch.kernel), device, scale).items():
            total[name] = total.get(name, 0.0) + seconds
    return tuple(sorted(total.items(), key=lambda item: -item[1]))


def _summary(launches: Sequence[Launch], limits: Sequence[tuple[str, float]], occupancy: Sequence[tuple[str, float, str]], findings: Sequence[Finding]) -> str:
    """One sentence: what limits, and the counted reasons for it."""
    if not launches:
        return "no CuTe DSL kernel was launched"
    said = [f"{len(launches)} kernel launch{'es' if len(launches) > 1 else ''}"]
    if limits:
        said[0] += f", limited by {limits[0][0]} (modelled)"
    busiest = max(range(len(launches)), key=lambda n: launches[n].total.instructions)
    said += [*waste(launches[busiest].total)]
    _, fraction, limiter = occupancy[busiest]
    if fraction < LOW_OCCUPANCY:
        said.append(f"{fraction:.0%} occupancy, limited by {limiter}")
    if findings:
        said.append(f"{len(findings)} finding{'s' if len(findings) != 1 else ''}")
    return "; ".join(said)


def waste(total: LineCounts) -> tuple[str, ...]:
    """Counted sectors and wavefronts that are well over the ideal, as phrases."""
    pairs = (("sectors", total.global_sectors, total.global_ideal_sectors), ("shared-memory wavefronts", total.shared_wavefronts, total.shared_ideal_wavefronts))
    return tuple(f"{used / ideal:.1f}x the ideal {name}" for name, used, ideal in pairs if ideal and used / ideal > WASTE)
