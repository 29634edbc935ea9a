"""The report of a profile: tables of counters, instructions and kernels, then its plots."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

from workbench.records import Launch, LineCounts, Profile, Version
from workbench.views.plots import profile as profile_plots
from workbench.views.text.diagnosis import describe_wrong
from workbench.views.text.l2_report import l2_tables
from workbench.views.text.mime_bundle import MimeBundle, format_amount, render_table

MOST_LINES = 20  # source lines of a launch in the table of counters
COUNTER_HEAD = (
    *("line", "source", "instructions", "FLOPs", "bytes read", "bytes written"),
    *("sectors / ideal", "wavefronts / ideal"),
)
NO_L2 = "hits in L2 between CTAs cannot be told from a few of them: --case shrunk follows all CTAs of the emulated case"
FormatCount = Callable[[int], str]


def profile_report(version: Version, found: Profile) -> MimeBundle:
    """Counters per source line, instructions, kernels and findings, then the plots.

    Without emulated launches: the table of kernels and the plots.
    """
    return _warn(version, _report(version, found))


def profile_plot(version: Version, found: Profile, name: str) -> MimeBundle:
    """One plot of a profile by its name."""
    return _warn(version, profile_plots.plot(found, name))


def _warn(version: Version, shown: MimeBundle) -> MimeBundle:
    """What is shown of a profile, below a warning if the version is not correct."""
    warning = describe_wrong(version)
    if not warning:
        return shown
    return _join(MimeBundle(warning, html=f"<p><strong>{warning}</strong></p>"), shown)


def _report(version: Version, found: Profile) -> MimeBundle:
    plots = profile_plots.all_plots(found, has_summary=not found.launches)  # the caption of the counters has it
    if not found.launches:
        kernels = profile_plots.kernel_table(found) if found.kernels else MimeBundle("")
        text = "\n\n".join(filter(None, [f"v{version.number}", kernels.text]))
        return _join(MimeBundle(text, html=kernels.html), plots)
    # counts that are scaled from a few CTAs to the full case are not exact, so they are rounded
    format_count: FormatCount = format_amount if found.case == "full" else str
    tables = [
        _counter_table(version, found, format_count),
        render_table(
            ["class", "thread-instructions"],
            [[name, format_count(count)] for launch in found.launches for name, count in launch.classes],
            "Instructions executed (counted)",
        ),
        render_table(
            ["kernel", "registers", "spilled bytes", "static shared bytes"],
            [
                [profile_plots.short_kernel_name(b.kernel), b.registers, b.spill_bytes, b.static_shared_bytes]
                for b in found.builds
            ],
            "Compiled",
        ),
    ]
    tables += l2_tables(found, version.proposal.candidate.source)
    tail, listed = _findings(found)
    head = MimeBundle(
        "\n\n".join([*(text for text, _ in tables), tail]), html="".join(page for _, page in tables) + listed
    )
    return _join(head, plots)


def _counter_table(version: Version, found: Profile, format_count: FormatCount) -> tuple[str, str]:
    """The busiest source lines of each launch with their counters, as text and HTML."""
    source = version.proposal.candidate.source.splitlines()
    rows = [
        _counter_row(line, source, format_count)
        for launch in found.launches
        for line in sorted(launch.lines, key=lambda row: -row.instructions)[:MOST_LINES]
    ]
    caption = f"v{version.number}: {found.summary}. {_count_note(found)}, busiest lines first"
    return render_table(COUNTER_HEAD, rows, caption)


def _counter_row(line: LineCounts, source: list[str], format_count: FormatCount) -> list[object]:
    text = source[line.line - 1].strip()[:70] if 0 < line.line <= len(source) else ""
    counts = (line.instructions, line.flops, line.global_read_bytes, line.global_write_bytes)
    ratios = (
        (line.global_sectors, line.global_ideal_sectors),
        (line.shared_wavefronts, line.shared_ideal_wavefronts),
    )
    return [
        line.line,
        text,
        *map(format_count, counts),
        *(f"{format_count(count)} / {format_count(ideal)}" if count else "" for count, ideal in ratios),
    ]


def _count_note(found: Profile) -> str:
    """The case of the counts, and how many CTAs they are scaled from."""
    if found.case != "full":
        return f"Counted at case {found.case}, on all CTAs"
    parts = [_executed_ctas(launch) for launch in found.launches if launch.sampled]
    return f"Counted on {', '.join(parts)} CTAs at full size and multiplied" if parts else "Counted at full size"


def _executed_ctas(launch: Launch) -> str:
    return f"{launch.sampled} of {math.prod(launch.grid)}"


def _findings(found: Profile) -> tuple[str, str]:
    """Occupancy and findings, as text and as an HTML list."""
    resident = [f"occupancy {fraction:.0%}, limited by {limiter}" for _, fraction, limiter in found.occupancy]
    where = " at the emulated case" if found.case == "full" else ""
    findings = [f"line {item.line}: {item.message}{where}" for item in found.findings]
    resident += [NO_L2] if any(launch.sampled for launch in found.launches) else []
    text = "\n".join(resident + (["findings:", *findings] if findings else []))
    return text, "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in resident + findings) + "</ul>"


def _join(head: MimeBundle, plots: MimeBundle) -> MimeBundle:
    return MimeBundle(f"{head.text}\n\n{plots.text}", html=head.html + plots.html, parts=(head, *plots.parts))
