"""SASS of a version -> its static instruction mix, as a profile without counters."""

from __future__ import annotations

from workbench.records import Job, Outcome, Profile


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
        """Builds with their mix; spills are named in the summary."""
        spilled = [build.kernel for build in outcome.builds if build.spill_bytes]
        said = f"{len(spilled)} kernel(s) spill registers" if spilled else "no kernel spills registers"
        return Profile(launches=(), builds=outcome.builds, occupancy=(), limits=(), findings=(), summary=said)
