"""The data of the live views as plain JSON: version tree, diff blocks, profile table, cost.

The dicts and lists go to the browser unchanged. The browser shows all texts as text, never as HTML, except
`roofline`, which is SVG that the workbench has drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Required, TypedDict

from workbench.analysis.hunks import hunks
from workbench.records import KernelBuild, LineCounts, Profile, Verdict, Version, kernel_function
from workbench.views.text import diagnosis
from workbench.views.text.mime_bundle import format_joules, format_share

Cell = int | str


class VersionRow(TypedDict):
    """One entry of the version tree."""

    number: int
    parent: int | None
    depth: int
    title: str
    reason: str
    by: str
    hash: str
    status: str
    correct: bool | None
    verdict: str
    decision: str
    gain: float | None


class DiffBlock(TypedDict, total=False):
    """A block of a diff: `same` has `lines` of [old, new, text], `skip` a `count`, `hunk` an `index` and both sides."""

    kind: Required[str]
    lines: list[list[Cell]]
    count: int
    index: int
    old: list[list[Cell]]
    new: list[list[Cell]]


class ChoiceRow(VersionRow):
    """A version to choose from, with its hunks against the parent."""

    hunks: list[DiffBlock]


class KernelRow(TypedDict):
    """The resources of one compiled kernel."""

    kernel: str
    arch: str
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    occupancy: str


class ProfileTable(TypedDict):
    """One row per source line (number, eight counters, text), and the kernels."""

    rows: list[list[Cell]]
    kernels: list[KernelRow]
    note: str


class Cost(TypedDict):
    """Tokens and dollars (None = unknown)."""

    usd: float | None
    tokens_in: int
    tokens_out: int


CONTEXT = 3  # equal lines shown on each side of a hunk


def next_pending(versions: Iterable[Version], number: int) -> int | None:
    """The next version after `number` that waits for a decision, else the first one that does."""
    pending = [version.number for version in versions if version.standing == "pending"]
    return next((other for other in pending if other > number), pending[0] if pending else None)


def verdict_text(version: Version) -> str:
    """The latest verdict in one line with the provenance of its time; "not tested" without a trial."""
    if not version.trials:
        return "not tested"
    verdict = version.trials[-1].verdict
    if not verdict.correct:
        failure = verdict.failure
        where = f" (line {failure.line})" if failure and failure.line else ""
        return f"{failure.stage}: {failure.message}{where}" if failure else "wrong"
    parts = ["correct"]
    if verdict.time_s is not None:
        parts.append(f"{_format_seconds(verdict.time_s)} {describe_provenance(version)}{_format_interval(verdict)}")
    timing = version.trials[-1].outcome.timing
    if timing is not None and timing.call_s is not None:
        parts.append(f"{_format_seconds(timing.call_s)} a call with the host")
    if verdict.recorded is not None:
        parts.append(f"{_format_seconds(verdict.recorded.seconds)} recorded on {verdict.recorded.device}")
    parts += _energy_phrases(version)
    if verdict.fraction_of_bound is not None:
        parts.append(f"{_format_share(verdict.fraction_of_bound)} of the bound")
    if verdict.speedup is not None:
        calls = " by whole calls" if verdict.speedup_of == "calls" else ""
        parts.append(f"{verdict.speedup:.2f}x its parent{calls}{noise_phrase(verdict)}")
    if verdict.recorded_speedup is not None:
        parts.append(f"{verdict.recorded_speedup:.2f}x its parent recorded")
    doubts = [
        f"{'refused as suspect' if doubt == verdict.refused else 'suspect'}: {doubt}" for doubt in verdict.suspect
    ]
    refused = [said.partition(" (")[0] for said in verdict.refuses]  # the verdict itself has the reasons too
    doubts += [f"refuses {', '.join(refused)}"] * bool(refused) + [f"doubt: {said}" for said in verdict.doubts]
    left_out = [said.partition(" (")[0] for said in verdict.left_out]
    doubts += [f"left out: inputs of {', '.join(left_out)}"] * bool(left_out)
    return "; ".join(parts + doubts + [*verdict.untested, *(f"disturbed: {doubt}" for doubt in verdict.disturbed)])


def _format_share(value: float) -> str:
    return f"{value:.1%}" if value >= 0.01 else format_share(value)


def _energy_phrases(version: Version) -> list[str]:
    """The energies of a call, measured and modelled."""
    measured, modelled = version.energy, version.trials[-1].verdict.energy
    return [
        *([f"{format_joules(measured.joules_per_call)} a call measured on {measured.device}"] if measured else []),
        *([f"{format_joules(modelled.joules)} a call modelled"] if modelled else []),
    ]


def describe_provenance(version: Version) -> str:
    """The provenance of a version's last time, with the GPU of a measured one: times of two GPUs may stand together."""
    outcome, provenance = version.trials[-1].outcome, version.trials[-1].verdict.time_provenance
    is_recorded = any(name == "recorded" for name, _ in outcome.versions)
    return f"measured on {outcome.device}" if provenance == "measured" and not is_recorded else str(provenance)


def noise_phrase(verdict: Verdict) -> str:
    """What a speed-up that is not larger than its noise means."""
    if verdict.distinguishable is not False:
        return ""
    if verdict.time_provenance == "modelled":
        return ", cannot be told without a GPU"
    return ", within the noise"


def _format_interval(verdict: Verdict) -> str:
    if verdict.time_interval is None:
        return ""
    low, high = map(_format_seconds, verdict.time_interval)
    return f" ({low} to {high}, limited by {verdict.limit})"


def _format_seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def version_row(version: Version, depth: int) -> VersionRow:
    """One entry of the version tree."""
    trial = version.trials[-1] if version.trials else None
    decision = version.decision
    return {
        "number": version.number,
        "parent": version.parent,
        "depth": depth,
        "title": version.proposal.title,
        "reason": version.proposal.reason,
        "by": version.proposal.by,
        "hash": version.source_hash,
        "status": version.standing,
        "correct": trial.verdict.correct if trial else None,
        "verdict": verdict_text(version),
        "decision": decision.reason if decision else "",
        "gain": version.proposal.predicted_gain,
    }


def version_tree(versions: Sequence[Version]) -> list[VersionRow]:
    """The rows of the version tree: each version after its parent, siblings by number."""
    known = {version.number for version in versions}
    children: dict[int | None, list[Version]] = {}
    for version in versions:
        children.setdefault(version.parent if version.parent in known else None, []).append(version)
    rows: list[VersionRow] = []
    waiting = [(version, 0) for version in reversed(children.get(None, []))]
    while waiting:
        version, depth = waiting.pop()
        rows.append(version_row(version, depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(version.number, []))]
    return rows


def diff_blocks(old: str, new: str) -> list[DiffBlock]:
    """The blocks of a side-by-side diff, in order."""
    a, b = old.splitlines(), new.splitlines()
    found = hunks(old, new)
    blocks: list[DiffBlock] = []
    i = k = 0
    for hunk in found:
        _add_equal_lines(blocks, a, i, k, hunk.old_start - i, before=i > 0)
        i, k = hunk.old_start, hunk.new_start
        old_lines: list[list[Cell]] = [[i + n + 1, line.rstrip("\r\n")] for n, line in enumerate(hunk.old)]
        new_lines: list[list[Cell]] = [[k + n + 1, line.rstrip("\r\n")] for n, line in enumerate(hunk.new)]
        blocks.append({"kind": "hunk", "index": hunk.index, "old": old_lines, "new": new_lines})
        i, k = i + len(hunk.old), k + len(hunk.new)
    if found:
        _add_equal_lines(blocks, a, i, k, min(len(a) - i, len(b) - k), before=True, after=False)
    return blocks


def choice_rows(versions: Sequence[Version], shown: Version) -> list[ChoiceRow]:
    """The pending versions with the same parent as `shown`; empty if `shown` is the only one."""
    parent = next((version for version in versions if version.number == shown.parent), None)
    old = parent.proposal.candidate.source if parent else ""
    found = [version for version in versions if version.parent == shown.parent and version.standing == "pending"]
    if shown.standing != "pending" or len(found) < 2:
        return []
    return [
        {
            **version_row(version, 0),
            "hunks": [
                block for block in diff_blocks(old, version.proposal.candidate.source) if block["kind"] == "hunk"
            ],
        }
        for version in found
    ]


def _add_equal_lines(
    blocks: list[DiffBlock], lines: list[str], i: int, k: int, count: int, *, before: bool, after: bool = True
) -> None:
    """Append `count` equal lines from old line i and new line k. The middle of a long stretch is skipped."""
    head = CONTEXT if before else 0
    tail = CONTEXT if after else 0
    if count <= head + tail + 1:
        head, tail = count, 0
    rows: list[list[Cell]] = [[i + n + 1, k + n + 1, lines[i + n]] for n in range(count)]
    if head:
        blocks.append({"kind": "same", "lines": rows[:head]})
    if count > head + tail:
        blocks.append({"kind": "skip", "count": count - head - tail})
    if tail:
        blocks.append({"kind": "same", "lines": rows[-tail:]})


def profile_table(version: Version, made: Profile | None = None) -> ProfileTable:
    """Counters per source line, summed over all launches, busiest first; and the resources of the kernels.

    The source is the profile `made`, else the latest trial: its run at full size, else the emulated case.
    """
    trial = version.trials[-1] if version.trials else None
    launches = made.launches if made else trial.outcome.full_launches or trial.outcome.launches if trial else ()
    builds = made.builds if made else trial.outcome.builds if trial else ()
    source = version.proposal.candidate.source.splitlines()
    merged: dict[int, list[int]] = {}
    for counts in (line for launch in launches for line in launch.lines):
        values = _counter_values(counts)
        merged[counts.line] = [a + b for a, b in zip(merged.get(counts.line, [0] * len(values)), values, strict=True)]
    ordered = sorted(merged.items(), key=lambda item: (-item[1][0], item[0]))
    rows: list[list[Cell]] = [
        [line, *values, source[line - 1].strip() if 0 < line <= len(source) else ""] for line, values in ordered
    ]
    note = _describe_no_counters(version)
    if made or rows:
        note = "; ".join(filter(None, [diagnosis.describe_wrong(version), made.summary if made else ""]))
    return {"rows": rows, "kernels": [_kernel_row(build, made) for build in builds], "note": note}


def _describe_no_counters(version: Version) -> str:
    if not version.trials:
        return "not tested yet"
    return f"nothing was counted: {describe_failure(version) or 'this trial did not run on the emulator'}"


def describe_failure(version: Version) -> str:
    """In which stage the last trial of a version ended before its results were compared, or ""."""
    failure = version.trials[-1].verdict.failure
    if failure is None or failure.stage == "check":
        return ""
    said = {"source": "is refused as a source", "compile": "does not compile"}
    return f"v{version.number} {said.get(failure.stage, f'failed at {failure.stage}')}"


def _counter_values(counts: LineCounts) -> list[int]:
    return [
        counts.instructions,
        counts.flops,
        counts.global_read_bytes,
        counts.global_write_bytes,
        counts.global_sectors,
        counts.global_ideal_sectors,
        counts.shared_wavefronts,
        counts.shared_ideal_wavefronts,
    ]


def _kernel_row(build: KernelBuild, made: Profile | None) -> KernelRow:
    resident = made.occupancy if made else ()
    occupancy = [
        f"{fraction:.0%}, limited by {limiter}" for kernel, fraction, limiter in resident if kernel == build.kernel
    ]
    return {
        "kernel": kernel_function(build.kernel),
        "arch": build.arch,
        "registers": build.registers,
        "spill_bytes": build.spill_bytes,
        "shared_bytes": build.static_shared_bytes,
        "occupancy": occupancy[0] if occupancy else "",
    }


def total_cost(versions: Iterable[Version]) -> Cost:
    """Tokens and dollars of all versions. `usd` is None if one proposal used tokens without a known price."""
    tokens_in = tokens_out = 0
    usd: float | None = 0.0
    for proposal in (version.proposal for version in versions):
        tokens_in += proposal.tokens_in or 0
        tokens_out += proposal.tokens_out or 0
        asked = proposal.tokens_in is not None
        if usd is not None and (proposal.cost_usd is not None or asked):
            usd = usd + proposal.cost_usd if proposal.cost_usd is not None else None
    return {"usd": usd, "tokens_in": tokens_in, "tokens_out": tokens_out}
