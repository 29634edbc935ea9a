"""SASS of a version -> its static instruction mix, as a profile without counters."""

from __future__ import annotations

from workbench.records import Job, KernelBuild, Outcome, Profile


class SassProfiler:
    """Reads the binary only."""

    name = "sass"

    def why_not(self) -> str | None:
        """Needs nvdisasm."""
        from workbench.errors import Unavailable
        from workbench.toolchain.binary import nvdisasm

        try:
            nvdisasm()
        except Unavailable as error:
            return str(error)
        return None

    def profile(self, job: Job, outcome: Outcome, /) -> Profile:
        """Builds with their mix; registers, spills and the most frequent instruction class are in the summary."""
        said = "; ".join(describe(build) for build in outcome.builds) or "nothing was compiled"
        return Profile(launches=(), builds=outcome.builds, occupancy=(), limits=(), findings=(), summary=said)


def describe(build: KernelBuild) -> str:
    """One kernel in a phrase: registers, spills, the largest class of its instructions."""
    parts = [f"{build.registers} registers" if build.registers is not None else "registers unknown"]
    parts.append(f"spills {build.spill_bytes} bytes per thread" if build.spill_bytes else "no spills")
    if build.mix:
        name, count = max(build.mix, key=lambda item: item[1])
        parts.append(f"{count} of {sum(number for _, number in build.mix)} instructions are {name}")
    return f"{build.kernel}: {', '.join(parts)}"
