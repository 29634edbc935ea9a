"""The report of an emulation: text for a person (in compute-sanitizer's form) and a JSON document."""

from __future__ import annotations

import linecache
from typing import Any

from workbench.analysis.time_model import estimate_time
from workbench.emulator.hook import Emulation
from workbench.emulator.timing.roofline import roofline_seconds
from workbench.records import Failure, Finding, Launch, Work
from workbench.wire import to_plain

MARK = "========= "
WAITS = 3  # number of lines shown, those at which warps wait longest
SHOWN = 50  # pieces of advice shown in full; the rest are counted


def heading(name: str, emulation: Emulation) -> str:
    """The first line, printed before the program runs."""
    return (
        f"{MARK}cutegen emulate: {name} on an emulated {emulation.gpu.device.name} ({emulation.arch}); no GPU is used"
    )


def text(emulation: Emulation, *, advice: bool, status: int = 0) -> str:
    """Errors, advice if requested, the counters, and a summary line; `status` is the program's exit status."""
    lines: list[str] = []
    for fault in emulation.faults:
        lines += _failure_lines(fault.failure, fault.finding, emulation)
    hints = _deduplicate(
        [finding for launch in emulation.launches for finding in launch.findings if finding.severity == "advice"]
    )
    if advice:
        for finding in hints[:SHOWN]:
            lines += [f"ADVICE {finding.kind}: {finding.message}", *_location_lines(finding, emulation)]
        if len(hints) > SHOWN:
            lines.append(f"and {len(hints) - SHOWN} more pieces of advice")
    lines += _timeline_lines(emulation)
    lines += emulation.notes
    lines.append(_counts_line(emulation))
    errors = len(emulation.faults)
    kept = (
        f", {len(hints)} piece{'' if len(hints) == 1 else 's'} of advice{'' if advice else ' (shown with --sanitize)'}"
        if hints or advice
        else ""
    )
    failed = f"the program failed (exit status {status}); " if status and not errors else ""
    lines.append(
        f"ERROR SUMMARY: {failed}{errors} error{'' if errors == 1 else 's'}{' in kernels' * bool(failed)}{kept}"
    )
    return "\n".join(MARK + line for line in lines)


def _failure_lines(failure: Failure, finding: Finding | None, emulation: Emulation) -> list[str]:
    lines = [f"ERROR {failure.kind}: {failure.message}", *(_location_lines(finding, emulation) if finding else [])]
    return [*lines, f"    hint: {failure.hint}"] if failure.hint else lines


def _deduplicate(findings: list[Finding]) -> list[Finding]:
    """One finding for each place and kind, since a kernel may be launched a hundred times."""
    return list({(finding.kernel, finding.line, finding.kind): finding for finding in findings}.values())


def _location_lines(finding: Finding, emulation: Emulation) -> list[str]:
    files = emulation.source_files(finding.kernel, finding.line) if finding.line else []
    where = " or ".join(f"{file}:{finding.line}" for file in files) or (
        f"line {finding.line}" if finding.line else "a place without line information"
    )
    source = linecache.getline(files[0], finding.line).strip() if finding.line and len(files) == 1 else ""
    return [f"    at {where} in kernel {finding.kernel}", *([f"        {source}"] if source else [])]


def _timeline_lines(emulation: Emulation) -> list[str]:
    """For each followed kernel's longest launch: cycles of a CTA, modelled time, its limit, and where warps wait."""
    slowest: dict[str, tuple[float, str, Launch]] = {}
    for launch in emulation.launches:
        if launch.paced is not None:
            seconds, limit = _modelled_time(launch, emulation)
            if launch.kernel not in slowest or seconds > slowest[launch.kernel][0]:
                slowest[launch.kernel] = (seconds, limit, launch)
    lines = []
    for kernel, (seconds, limit, launch) in slowest.items():
        paced = launch.paced
        assert paced is not None
        hits = f", L1 hits {100 * (1 - paced.l1_missed / paced.l1_sectors):.0f} %" if paced.l1_sectors else ""
        lines.append(
            f"followed: {kernel}: {seconds * 1e6:.3g} us modelled, limited by {limit}; one CTA alone takes"
            f" {paced.cycles:,.0f} cycles{hits}"
        )
        for line, cycles in paced.stalls[:WAITS]:
            files = emulation.source_files(kernel, line)
            source = linecache.getline(files[0], line).strip() if len(files) == 1 else ""
            lines.append(f"    a warp waits {cycles:,.0f} cycles at line {line}" + (f": {source}" if source else ""))
    return lines


def _modelled_time(launch: Launch, emulation: Emulation) -> tuple[float, str]:
    """The modelled time and its limit. The least bytes are the launch's traffic, at most the size of all allocated
    memory.
    """
    total, alive = launch.total, emulation.global_memory().allocations
    least = min(total.global_read_bytes + total.global_write_bytes, sum(allocation.size for allocation in alive) or 1)
    work = Work(case="launch", flops=total.flops, least_bytes=least, dtype="float16", tensor_cores=True)
    found = estimate_time([launch], (), emulation.gpu.device, work)
    return found.seconds, found.limit


def _counts_line(emulation: Emulation) -> str:
    launches = emulation.launches
    if not launches:
        return "no launch ran to its end" if emulation.faults else "no kernel was launched"
    total = [launch.total for launch in launches]
    kernels = len({launch.kernel for launch in launches})
    return (
        f"counted: {len(launches)} launch{'' if len(launches) == 1 else 'es'} of {kernels}"
        f" kernel{'' if kernels == 1 else 's'}, {sum(t.instructions for t in total):,} thread-instructions, "
        f"{sum(t.flops for t in total):,} FLOPs, {sum(t.global_read_bytes for t in total):,} bytes read,"
        f" {sum(t.global_write_bytes for t in total):,} bytes written; "
        f"modelled: {emulation.gpu.clock_s * 1e6:.3g} us (roofline of {emulation.gpu.device.name}, not measured)"
    )


def document(name: str, emulation: Emulation) -> dict[str, Any]:
    """All counters and findings, ready for JSON; times are modelled, in microseconds."""
    return {
        "program": name,
        "device": emulation.gpu.device.name,
        "arch": emulation.arch,
        "launches": [
            {**to_plain(launch), "modelled_us": roofline_seconds(launch, emulation.gpu.device) * 1e6}
            for launch in emulation.launches
        ],
        "errors": [
            {
                "failure": to_plain(fault.failure),
                "finding": to_plain(fault.finding) if fault.finding else None,
                "files": _finding_files(fault.finding, emulation),
            }
            for fault in emulation.faults
        ],
        "notes": list(emulation.notes),
    }


def _finding_files(finding: Finding | None, emulation: Emulation) -> list[str]:
    return emulation.source_files(finding.kernel, finding.line) if finding and finding.line else []
