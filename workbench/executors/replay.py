"""Answers jobs with recorded outcomes of a session's store or a measured landscape. Nothing is compiled or run."""

from __future__ import annotations

from collections.abc import Callable

from workbench import landscapes
from workbench.analysis import devices
from workbench.errors import Unavailable, Unrecorded, UserError
from workbench.landscapes import Landscape, Row
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Check, Facts, Job, KernelBuild, Outcome, Problem, Timing
from workbench.wire import content_hash

CASE = "full"


class ReplayExecutor(Executor):
    """Returns recorded outcomes.

    `lookup(job hash)` comes first (for a session it is `Store.outcome`). Landscapes answer if it has no outcome.
    """

    name = "replay"
    full_size = True  # the outcomes were recorded on a GPU at full size
    default_arch = "sm_90a"

    def __init__(self, lookup: Callable[[str], Outcome | None] | None = None) -> None:
        self.lookup = lookup

    def why_not(self) -> str | None:
        """Needs a lookup or a landscape."""
        if self.lookup is not None or landscapes.files():
            return None
        return (
            f"no landscape is installed: set {landscapes.OWN} to a folder with files of "
            "tests/bench/landscape_on_gpu.py, or use the emulator"
        )

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Raise `Unavailable` for a problem without a landscape, `UserError` for a device that was not recorded."""
        places, name = landscapes.find_all(problem), devices.find(device).name
        if not places and self.lookup is None:
            raise Unavailable(_no_landscape(problem))
        if places and landscapes.find(problem, name) is None:
            known = " and ".join(place.device for place in places)
            there = devices.match(places[0].device)
            raise UserError(
                f"--device {name}: {problem.name} was recorded on an {known}; "
                f'give --device "{there.name if there else places[0].device}", or use the emulator'
            )

    def can_answer(self, problem: Problem, device: str, arch: str, program: str) -> bool:
        """Whether a landscape has the program; without a landscape the lookup decides, job by job."""
        place = landscapes.find(problem, device)
        return place is None or place.row(program, arch) is not None

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        """The recorded outcome of this job, else that of its program's row in the problem's landscape.

        Raises `Unavailable` if there is neither, `Unrecorded` if only this program is missing.
        """
        found = self.lookup(content_hash(job)) if self.lookup else None
        return found if found is not None else _from_landscape(job)


def _no_landscape(problem: Problem) -> str:
    return f"{landscapes.not_recorded(problem)}; or run it with the emulator or on a GPU"


def _from_landscape(job: Job) -> Outcome:
    place = landscapes.find(job.problem, job.device)
    if place is None:
        raise Unavailable(_no_landscape(job.problem))
    if not job.cold_l2:
        raise Unavailable("the recorded times are with a cold L2: leave --l2 warm out")
    program = job.candidate.program
    if program is None:
        raise Unavailable(
            "only programs of muCUTLASS were recorded, and this version is a source of its own: "
            "test it with the emulator or on a GPU"
        )
    row = place.row(program, job.arch)
    if row is None:
        near = place.nearest(program)
        raise Unrecorded(
            f"{program} was not recorded for {place.name}; "
            + (f"the nearest that was is {near.program}" if near else "nothing that computes it in this way was")
        )
    return row_outcome(place, row, job.arch)


def row_timing(place: Landscape, row: Row | None) -> Timing | None:
    """The times of a row; None if it has none."""
    if row is None or row.median_s is None or row.low_s is None or row.high_s is None:
        return None
    return Timing(
        case=CASE,
        device=place.device,
        samples_s=row.samples_s,
        median_s=row.median_s,
        low_s=row.low_s,
        high_s=row.high_s,
    )


def row_outcome(place: Landscape, row: Row, arch: str) -> Outcome:
    """A row as the outcome of a GPU run. `versions` holds the date and the versions of the run."""
    run = place.runs[row.run]
    why = row.failure_record
    checked = row.error is not None
    check = Check(
        case=CASE,
        trial=0,
        timed=True,
        passed=row.correct,
        max_error=row.error or 0.0,
        message=why.message if why else "",
    )
    build = KernelBuild(
        kernel="all kernels, the largest of each",
        arch=arch,
        registers=row.registers,
        spill_bytes=row.spill_bytes,
        static_shared_bytes=row.shared_bytes or 0,
        compile_s=row.compile_s,
    )
    return Outcome(
        executor="replay",
        arch=arch,
        device=place.device,
        failure=why,
        builds=(build,) if row.registers is not None else (),
        checks=(check,) if checked else (),
        timing=row_timing(place, row) if row.correct else None,
        reference_timing=row_timing(place, place.eager),
        versions=(
            ("recorded", str(run["date"])[:10]),
            *((name, str(value)) for name, value in sorted(run["versions"].items())),
        ),
    )
