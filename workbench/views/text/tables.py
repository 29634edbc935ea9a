"""Tables of a session: verdict, history, comparison and status."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workbench.analysis import call_times, coverage, devices
from workbench.analysis.time_model import FITTED_ON, describe_fit
from workbench.records import Check, Outcome, Timing, Verdict, Version
from workbench.session import Session
from workbench.session.deciding import describe_settled
from workbench.session.verifying import LogCheck
from workbench.views.notebook import view_model
from workbench.views.plots.error_map import draw_error_map
from workbench.views.text.diagnosis import find_faster
from workbench.views.text.mime_bundle import MimeBundle, format_joules, format_seconds, format_share, render_table
from workbench.views.text.problem_card import format_shapes, headline, list_warnings

if TYPE_CHECKING:
    from pandas import DataFrame

# dtype of the bound -> its mention beside the time; float32 is not mentioned
PRECISIONS = {"tfloat32": ", tf32 maths", "float16": " in fp16", "bfloat16": " in bf16"}
TORCH = {"eager": "torch eager", "compiled": "torch.compile"}  # by `Ratio.against`
LEAST_GAIN = 0.005  # a predicted gain that is nearer to 1 says nothing
ENERGY_NAMES = {"half tensor": "tensor cores", "tf32 tensor": "tensor cores", "shared": "shared memory"}
GREEN, RED = "rgba(46,160,67,.18)", "rgba(218,54,51,.16)"  # grounds of a verdict


def verdict(version: Version, *, note: str = "", then: str = "") -> MimeBundle:
    """The verdict on a version: proposal and reason, the failing source line, times and their provenance; last what its
    author said besides, and `then`, the next step.
    """
    lines = _proposal_lines(version)
    if not version.trials:
        return MimeBundle("\n".join([*lines, "  not tested yet"]))
    found = version.trials[-1].verdict
    lines += [_correct_line(version)] if found.correct else _failure_lines(version)
    lines += [*_limit_lines(found), *_time_lines(version), *_energy_lines(version)]
    lines += [f"  {'REFUSED as suspect' if doubt == found.refused else 'suspect'}: {doubt}" for doubt in found.suspect]
    if missing := version.trials[-1].outcome.unprotected:
        lines.append(f"  confined without: {', '.join(missing)} (cutegen doctor says why)")
    if version.decision:
        reason = f": {version.decision.reason}" if version.decision.reason else ""
        lines.append(f"  {version.decision.participle}{reason}")
    lines += [f"  {name}: {said}" for name, said in (("note", note), ("next", then)) if said]
    mark, colour = ("✓ correct", GREEN) if found.correct else ("✗ not correct", RED)
    if found.refused:
        mark, colour = "✗ refused as suspect", RED
    text = "\n".join(lines)
    wrapped = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:0"
    page = (
        f'<div style="border-left:4px solid;padding:2px 8px;background:{colour}"><strong>{mark}</strong>'
        f'<pre style="{wrapped}">{html.escape(text)}</pre>{_error_map(version)}</div>'
    )
    return MimeBundle(text, html=page)


def next_step(version: Version, *, has_model: bool) -> str:
    """What a person in a notebook may do about a version that was just tested; "" if it is decided."""
    if version.decision is not None or not version.trials:
        return ""
    found = version.trials[-1].verdict
    if found.refused:
        return "%%cutegen edit mends it, %cutegen reject WHY drops it"
    if not found.correct:
        mend = "%cutegen repair or %%cutegen edit mends it" if has_model else "%%cutegen edit mends it"
        return f"{mend}, %cutegen reject WHY drops it"
    if version.parent is None:
        return "%cutegen accept makes it the baseline"
    return "%cutegen diff shows the change, then %cutegen accept or %cutegen reject WHY"


def _error_map(version: Version) -> str:
    """The map of the first output that is wrong."""
    wrong = (check for check in version.trials[-1].outcome.checks if check.wrong is not None)
    first = next(wrong, None)
    return draw_error_map(first) if first is not None and not version.trials[-1].verdict.correct else ""


def _proposal_lines(version: Version) -> list[str]:
    proposal = version.proposal
    lines = [f"v{version.number} {proposal.title}" + (f"  (from v{version.parent})" if version.parent else "")]
    if proposal.reason:
        lines.append(f"  why: {proposal.reason}")
    if proposal.predicted_gain:
        known = abs(proposal.predicted_gain - 1) >= LEAST_GAIN
        gain = f"{proposal.predicted_gain:.2f}x" if known else "no gain"
        lines.append(f"  expected before it was compiled: {gain} (by the planner's model of the settings)")
    return lines


def _correct_line(version: Version) -> str:
    trial = version.trials[-1]
    worst = trial.verdict.worst_error
    error = _absolute_errors(trial.outcome.checks)
    if not error and worst is not None:
        error = f"; errors under {_round_up_error(worst)} of the tolerance"
    return f"  CORRECT at {coverage.tested_cases(trial.outcome.checks)}{error}"


def _limit_lines(found: Verdict) -> list[str]:
    """What a correct result was tested at, and not, what it refuses, and doubts that decide nothing."""
    return [
        *([f"  tested: {'; '.join(found.tested)}"] if found.tested else []),
        *(f"  refuses {said}" for said in found.refuses),
        *(f"  not varied: {said}" for said in found.untested),
        *(f"  left out: inputs of {said}" for said in found.left_out),
        *(f"  doubt: {said}" for said in found.doubts),
    ]


def _absolute_errors(checks: Sequence[Check]) -> str:
    """The largest error of the comparison that went worst, beside torch eager's; "" if torch eager's is unknown."""
    worst = max(checks, key=lambda check: check.max_error, default=None)
    if worst is None or worst.eager_absolute is None:
        return ""
    return f"; largest error {worst.max_absolute:.0e}, torch eager's {worst.eager_absolute:.0e}"


def _round_up_error(error: float) -> str:
    """The error, rounded up to 50 % or 100 %. Inputs are random, so more digits would change from run to run."""
    return next((f"{limit:.0%}" for limit in (0.5,) if error < limit), "100%")


def _failure_lines(version: Version) -> list[str]:
    failure = version.trials[-1].verdict.failure
    if failure is None:
        return ["  NOT CORRECT"]
    wrong = [check for check in version.trials[-1].outcome.checks if not check.passed and not check.unasked]
    out = [f"  NOT CORRECT  {failure.stage} / {failure.kind}: {failure.message}{_absolute_errors(wrong)}"]
    source = version.proposal.candidate.source.splitlines()
    if failure.line and 0 < failure.line <= len(source):
        for number in range(max(failure.line - 1, 1), min(failure.line + 1, len(source)) + 1):
            out.append(f"  {'>' if number == failure.line else ' '} {number:4} | {source[number - 1]}")
    if failure.hint:
        out.append(f"  hint: {failure.hint}")
    return out


def _time_lines(version: Version) -> list[str]:
    found = version.trials[-1].verdict
    out = []
    if found.time_s is not None and found.bound is not None:
        policy = PRECISIONS.get(found.bound.dtype, "")
        out.append(
            f"  time at case {found.bound.case}{policy}: {format_seconds(found.time_s)} ({_provenance(version)}"
            f"{_interval(found)}); "
            f"bound {format_seconds(found.bound.bound_s)} ({found.bound.limited_by}); "
            f"{format_share(found.fraction_of_bound or 0.0)} of the bound"
        )
        if found.time_interval is not None and found.bound.device != FITTED_ON:
            out.append(f"  time model: {describe_fit(devices.find(found.bound.device))}")
    if found.time_note and found.time_s is None:
        out.append(f"  no time: {found.time_note}")
    if found.recorded is not None:
        out.append(
            f"  recorded on {found.recorded.device} {found.recorded.date}: {format_seconds(found.recorded.seconds)}"
        )
    if found.speedup is not None:
        low, high = found.speedup_interval or (0.0, 0.0)
        interval = f"; {low:.3f} to {high:.3f}" if low < high else ""
        out.append(f"  {found.speedup:.2f}x its parent ({found.basis}{view_model.noise_phrase(found)}{interval})")
    if found.recorded_speedup is not None:
        out.append(f"  {found.recorded_speedup:.2f}x its parent (recorded)")
    return out + _timing_lines(version.trials[-1].outcome) + [f"  disturbed: {doubt}" for doubt in found.disturbed]


def _interval(verdict: Verdict) -> str:
    """The interval and the limit of a modelled time."""
    if verdict.time_interval is None:
        return ""
    low, high = verdict.time_interval
    if verdict.time_s is not None and low >= verdict.time_s:  # the busiest resource alone takes as long
        return f", 95 % under {format_seconds(high)} and not less, limited by {verdict.limit}"
    return f", 90 % between {format_seconds(low)} and {format_seconds(high)}, limited by {verdict.limit}"


def _timing_lines(outcome: Outcome) -> list[str]:
    """How a time was measured, the launch overhead that it excludes, and the comparison with torch eager."""
    timing, out = outcome.timing, []
    if timing is None:
        return []
    for ratio in outcome.ratios:
        if ratio.against in TORCH and ratio.of == "kernels":
            out.append(f"  {ratio.ratio:.2f}x {TORCH[ratio.against]} (measured; {ratio.low:.3f} to {ratio.high:.3f})")
    rounds = f" in {len(timing.samples_s) // timing.per_round} rounds" if timing.per_round else ""
    how = f"a CUDA graph of {timing.calls_per_sample} calls" if timing.method == "graph" else "events"
    out.append(
        f"  timed with {how}, {'cold' if timing.cold_l2 else 'warm'} L2, {len(timing.samples_s)} samples{rounds}: "
        f"95 % between {format_seconds(timing.low_s)} and {format_seconds(timing.high_s)}"
    )
    out += _host_lines(timing, outcome)
    states = [one for one in timing.surroundings if one.sm_clock_mhz is not None and one.power_w is not None]
    if states:
        clocks, power = sorted(one.sm_clock_mhz or 0 for one in states), max(one.power_w or 0.0 for one in states)
        out.append(
            f"  SM clock {clocks[0]} to {clocks[-1]} MHz, up to {power:.0f} W "
            f"and {max(one.temperature_c or 0 for one in states)} °C"
        )
    return out + [f"  note: {note}" for note in timing.notes]


def _host_lines(timing: Timing, outcome: Outcome) -> list[str]:
    """What a launch takes the host, and the times of whole calls."""
    out = []
    if timing.launch_overhead_s is not None:
        waits = ": in a stream of calls the GPU waits for it" if timing.waits_for_host else ""
        out.append(
            f"  launching a call takes the host {format_seconds(timing.launch_overhead_s)}; no part of the time{waits}"
        )
    if timing.call_s is not None:
        out.append(f"  a call as a model sees it, from an idle GPU, host included: {_format_calls(outcome)}")
    return out


def _format_calls(outcome: Outcome) -> str:
    """The times of whole calls of the candidate and of what it is compared with, with the ratios."""
    names = {"parent": "its parent", **TORCH}
    ratios = {names[ratio.against]: ratio for ratio in outcome.ratios if ratio.of == "calls"}
    first, *others = [(one.name, one.call_s) for one in call_times.program_times(outcome) if one.call_s is not None]
    said = [format_seconds(first[1])]
    for name, seconds in others:
        ratio = ratios.get(name)
        said.append(f"{name} {format_seconds(seconds)}" + (f" ({ratio.ratio:.2f}x)" if ratio is not None else ""))
    return "; ".join(said)


def _energy_lines(version: Version) -> list[str]:
    """The energy of a call: measured, with its parts and without correction; and modelled, with its interval."""
    out, measured, modelled = [], version.energy, version.trials[-1].verdict.energy
    if measured is not None:
        low, high = format_joules(measured.low_joules), format_joules(measured.high_joules)
        out.append(
            f"  energy: {format_joules(measured.joules_per_call)} a call (measured on {measured.device}; {low} to "
            f"{high}): {format_joules(measured.active_joules)} active, {format_joules(measured.idle_joules)} idle; "
            f"without correction for the duty cycle {format_joules(measured.uncorrected_joules)}"
        )
    if modelled is not None:
        low, high = format_joules(modelled.low_joules), format_joules(modelled.high_joules)
        most = "".join(f", most of the rest by {ENERGY_NAMES.get(name, name)}" for name, _ in modelled.parts[:1])
        out.append(
            f"  energy: {format_joules(modelled.joules)} a call (modelled, 90 % between {low} and {high}): "
            f"{format_joules(modelled.static_joules)} static{most}"
        )
    return out


def _provenance(version: Version) -> str:
    """The provenance of the time, of a measured one with its GPU; for a replayed measurement also its date."""
    trial = version.trials[-1]
    recorded = dict(trial.outcome.versions).get("recorded")
    if recorded:
        return f"{trial.verdict.time_provenance}, recorded on {trial.outcome.device} {recorded}"
    return view_model.describe_provenance(version)


def decision_line(session: Session, version: Version) -> MimeBundle:
    """A decision in one line, with the next step."""
    decision, base = version.decision, session.baseline
    assert decision is not None
    reason = f": {decision.reason}" if decision.reason else ""
    now = f"the baseline is v{base.number}" if base is not None else "there is no baseline yet"
    then = "%cutegen refine proposes the next change" if base is not None else "%cutegen generate makes another version"
    now += describe_faster_accepted(session, version) if decision.kind == "accept" else ""
    return MimeBundle(f"v{version.number} {version.proposal.title}: {decision.participle}{reason}; {now}; {then}")


def describe_faster_accepted(session: Session, version: Version) -> str:
    """That a version which was accepted before is faster; "" if none is."""
    accepted = [one for one in session.versions if one.decision is not None and one.decision.kind == "accept"]
    faster = find_faster(version, [one for one in accepted if one.number != version.number])
    if faster is None:
        return ""
    found = faster.trials[-1].verdict
    return (
        f", though v{faster.number} is faster ({format_seconds(found.time_s)}, {found.time_provenance}): "
        f"%cutegen accept v{faster.number}"
    )


def list_settled(session: Session, before: Iterable[Version]) -> list[str]:
    """What was made since of those of the versions `before` that waited for a decision, a line for each."""
    return [said for version in before if (said := describe_settled(version, session.version(version.number)))]


def history(session: Session, before: Iterable[Version] = ()) -> MimeBundle:
    """The version tree with verdicts and decisions; above it what a loop made of pending versions that it found
    (`before`).
    """
    if not session.versions:
        return MimeBundle("no versions yet: %cutegen generate, or %%cutegen edit")
    lines = list_settled(session, before)
    items = [f"<div>{html.escape(line)}</div>" for line in lines]
    for row in view_model.version_tree(session.versions):
        mark = {"accepted": "✓", "rejected": "✗", "pending": "?", "accepted in part": "◐"}[row["status"]]
        reason = f" — {row['decision']}" if row["decision"] else ""
        lines.append(
            f"{'  ' * row['depth']}{mark} v{row['number']} {row['title']} [{row['verdict']}] {row['status']}{reason}"
        )
        items.append(f'<div style="padding-left:{24 * row["depth"]}px">{html.escape(lines[-1].strip())}</div>')
    return MimeBundle("\n".join(lines), html="".join(items))


def version_frame(session: Session) -> DataFrame:
    """`Session.frame()` without the columns of energy, cost and a GPU's calls that no version has."""
    found = session.frame()
    ends, starts = ("_j", "_usd", "call_s"), ("tokens_", "eager_", "compiled_")
    extra = [name for name in found.columns if name.endswith(ends) or name.startswith(starts)]
    return found.drop(columns=[name for name in extra if found[name].isna().all()])


def status(session: Session) -> MimeBundle:
    """The state of a session: problem, cases, baseline, best and pending version, warnings."""
    base, best = session.baseline, session.best
    rows = [
        ["problem", f"{session.problem.name}: {headline(session)}"],
        *(["case", f"{case.name}: {format_shapes(case)}"] for case in session.facts.cases),
        ["versions", str(len(session.versions))],
        ["baseline", f"v{base.number} {base.proposal.title}" if base else "none yet"],
        ["best accepted", f"v{best.number} {view_model.verdict_text(best)}" if best else "none yet"],
        *([["note", faster]] if (faster := describe_faster(session)) else []),
        ["pending", describe_pending(session.versions)],
        ["accept rule", session.accept_rule],
    ]
    rows += [["warning", damage.message] for damage in session.log.store.damage]
    rows += [["warning", warning] for warning in list_warnings(session)]
    rows += [["note", note] for note in session.facts.notes]
    if session.constraints:
        rows.append(["pinned", "; ".join(session.constraints)])
    text, page = render_table(["what", "now"], rows, f"session {session.name}")
    return MimeBundle(text, html=page)


def describe_pending(versions: Iterable[Version]) -> str:
    """How many versions wait for a decision, and the fastest that is correct, by measured times where there are any."""
    waiting = [version for version in versions if version.decision is None]
    if len(waiting) < 2:
        return f"v{waiting[0].number}: accept it or reject it" if waiting else "nothing"
    verdicts = [(version.trials[-1].verdict, version) for version in waiting if version.trials]
    correct = [(found, version) for found, version in verdicts if found.correct and not found.refused and found.time_s]
    measured = [item for item in correct if item[0].time_provenance == "measured"]
    found, best = min(measured or correct, key=lambda item: item[0].time_s or 0.0, default=(None, None))
    which = "none of them is correct with a time"
    if found is not None and best is not None:
        which = f"the fastest is v{best.number} ({format_seconds(found.time_s)}, {found.time_provenance})"
    return f"{len(waiting)} versions; {which}: accept or reject each"


def describe_faster(session: Session) -> str:
    """That a correct version without a decision is faster than the session's best, which is accepted; "" if none is.

    As for the best, times of one provenance and one GPU are compared.
    """
    best = session.best
    if best is None or not best.trials:
        return ""
    place = best.trials[-1].outcome.device
    pending = [version for version in session.versions if version.decision is None and version.trials]
    here = [version for version in pending if devices.is_same(version.trials[-1].outcome.device, place)]
    faster = find_faster(best, here)
    if faster is None:
        return ""
    found = faster.trials[-1].verdict
    return f"v{faster.number} is faster ({format_seconds(found.time_s)}, {found.time_provenance}) and pending"


def describe_choice(session: Session, version: Version, reference: str) -> str:
    """Which version was taken where "best" was asked for, and that a pending one is faster; "" for other references."""
    if reference != "best":
        return ""
    faster = describe_faster(session)
    return f"v{version.number} is the best accepted version" + (f"; {faster}" if faster else "")


def log_check(found: LogCheck) -> MimeBundle:
    """What `verify` found."""
    head = f"{found.entries} entries, head {found.head}" if found.head else "no hash chain"
    lines = [f"session {found.session}: {head}"]
    lines += [f"  {line}" for line in found.problems] or ["  nothing was changed after it was written"]
    if found.ran:
        lines.append(f"  run again: {', '.join(found.ran)}")
    return MimeBundle("\n".join(lines))
