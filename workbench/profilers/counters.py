"""Emulator counters and the cubin's resources -> `records.Profile`."""

from __future__ import annotations

from workbench.analysis import devices, model, occupancy
from workbench.records import Job, Outcome, Profile


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
        resident = []
        for launch in outcome.launches:
            build = builds.get(launch.kernel)
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            shared = launch.dynamic_shared_bytes + (build.static_shared_bytes if build else 0)
            found = occupancy.occupancy(device, threads=threads, registers=build.registers if build else None, shared_bytes=shared)
            resident.append((launch.kernel, found.fraction, found.limiter))
        limits = self._limits(job, outcome)
        findings = tuple(finding for launch in outcome.launches for finding in launch.findings)
        return Profile(launches=outcome.launches, builds=outcome.builds, occupancy=tuple(resident), limits=limits, findings=findings, summary=_summary(outcome, limits, findings))

    def _limits(self, job: Job, outcome: Outcome) -> tuple[tuple[str, float], ...]:
        work = {item.case: item for item in job.facts.work}
        small, full = work.get("shrunk"), work.get("full")
        if small is None or full is None:
            return ()
        scale = full.flops / small.flops if small.flops else full.least_bytes / max(small.least_bytes, 1)
        total: dict[str, float] = {}
        for launch in outcome.launches:
            dtype = full.dtype if full.dtype != "float32" else "tfloat32"
            parts = model.terms(launch, devices.find(outcome.device), work_scale=scale, byte_scale=full.least_bytes / len(outcome.launches), tensor_dtype=dtype)
            for name, seconds in parts.items():
                total[name] = total.get(name, 0.0) + seconds
        return tuple(sorted(total.items(), key=lambda item: -item[1]))


def _summary(outcome: Outcome, limits: tuple[tuple[str, float], ...], findings: tuple[object, ...]) -> str:
    if not outcome.launches:
        return "no CuTe DSL kernel was launched"
    name = limits[0][0] if limits else "nothing counted"
    kernels = f"{len(outcome.launches)} kernel launch{'es' if len(outcome.launches) > 1 else ''}"
    advice = f"; {len(findings)} finding{'s' if len(findings) != 1 else ''}" if findings else ""
    return f"{kernels}, limited by {name} (modelled){advice}"
