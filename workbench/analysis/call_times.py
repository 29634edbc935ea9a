"""Both times of a call, for the candidate and what it is compared with: of its kernels, and as a model sees it."""

from __future__ import annotations

from workbench.records import Outcome, Timing, record

NAMES = ("this version", "its parent", "torch eager", "torch.compile")


@record
class ProgramTimes:
    """Median seconds of one program in a run on a GPU. `call_s` is from an idle GPU to the end of a call, host time
    included; None where it was not measured.
    """

    name: str  # one of NAMES
    kernels_s: float
    call_s: float | None


def program_times(outcome: Outcome) -> tuple[ProgramTimes, ...]:
    """The times of the programs that took turns in a run, the candidate's first; none without a GPU."""
    timings = (outcome.timing, outcome.rival_timing, outcome.reference_timing, outcome.compiled_timing)
    return tuple(
        ProgramTimes(name=name, kernels_s=timing.median_s, call_s=timing.call_s)
        for name, timing in zip(NAMES, timings, strict=True)
        if timing is not None
    )


def time_columns(outcome: Outcome | None) -> dict[str, float | None]:
    """The times of a run in seconds, by column: `call_s`, and those of torch eager and of torch.compile."""

    def pick(timing: Timing | None, column: str) -> dict[str, float | None]:
        median, call = (timing.median_s, timing.call_s) if timing is not None else (None, None)
        return {f"{column}_s": median, f"{column}_call_s": call}

    eager = outcome.reference_timing if outcome is not None else None
    compiled = outcome.compiled_timing if outcome is not None else None
    own = outcome.timing if outcome is not None else None
    return {"call_s": own.call_s if own is not None else None, **pick(eager, "eager"), **pick(compiled, "compiled")}


def describe_times(outcome: Outcome) -> str:
    """Both times of each program in microseconds, in one line: for a docstring; "" without a GPU."""
    said = [
        f"{one.name}: kernels {one.kernels_s * 1e6:.1f} us"
        + (f", a call {one.call_s * 1e6:.1f} us" if one.call_s is not None else "")
        for one in program_times(outcome)
        if one.name != NAMES[1]
    ]
    return "; ".join(said)
