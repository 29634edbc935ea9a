"""The diagnosis of a version: its class, the room to the bound, then the probes' advice, best first."""

from __future__ import annotations

import html
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from workbench import search
from workbench.analysis import devices
from workbench.codegen.canonical import canonical
from workbench.probes import directives
from workbench.probes.moving import (
    describe_move,
    extends_failed_step,
    list_failed_steps,
    map_programs,
    name_settings,
    write_for,
    write_moved,
)
from workbench.records import Advice, Candidate, Diagnosis, Move, Problem, Version
from workbench.search import Example
from workbench.structure.kernels.kernel_rules import KernelRule
from workbench.views.figures.svg import as_image
from workbench.views.plots import measures
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, format_times
from workbench.views.text.rules_page import rules_block

MOST_EXAMPLES = 3  # advice with an example beside it
COLUMNS = 108
COLOURS = {"high": "#c0504d", "medium": "#b8740b", "low": "#7a7a7a"}
MARKS = {"high": "▲", "medium": "△", "low": "▽"}
MOST_MADE = 3  # versions that made an advised change before, which are named


class Change(NamedTuple):
    """The change of an advice: how to make it, what it sets in the program, and which versions have it already."""

    way: str
    sets: str = ""
    made: str = ""


Way = Callable[[Advice], Change]


def diagnosis_report(
    version: Version,
    found: Diagnosis,
    way: Way,
    rules: Sequence[KernelRule] = (),
    versions: Iterable[Version] = (),
    *,
    in_shell: bool = False,
) -> MimeBundle:
    """The diagnosis as text and HTML. `way` says how to make the change of an advice, such as one command.

    `rules` are those of recorded landscapes on whose slow side the version is, `versions` those of its session.
    `in_shell`: it is read on the command line, where magics are no commands.
    """
    candidate = version.proposal.candidate
    counters = "cutegen profile, with the same arguments" if in_shell else f"%cutegen profile v{version.number}"
    head = _head(version, found, find_faster(version, versions), counters)
    shown = () if found.exhausted else found.advice
    searched = "in a notebook: %cutegen search" if in_shell else "%cutegen search"
    blocks = [
        _Block(number, advice, found.room, candidate, way(advice), searched) for number, advice in enumerate(shown, 1)
    ]
    skipped = _skipped(found)
    told = rules_block(rules) if rules and not found.exhausted else MimeBundle("")
    parts = [*head, *(block.text() for block in blocks), *filter(None, (told.text, skipped))]
    text = "\n".join(parts)
    page = "".join(f'<p style="margin:2px 0">{html.escape(line.strip())}</p>' for line in head[1:])
    folded = f"<details><summary>{len(found.skipped)} probes were not asked</summary>{html.escape(skipped)}</details>"
    return MimeBundle(
        text,
        html=(
            f'<div style="max-width:900px"><p style="margin:2px 0"><strong>{html.escape(head[0])}</strong></p>{page}'
            f"{''.join(block.html() for block in blocks)}{told.html}{folded if skipped else ''}</div>"
        ),
        svg=measures.draw_measures([measure for advice in shown for measure in advice.evidence]),
    )


def notebook_way(
    version: Version, versions: Sequence[Version], *, has_model: bool, problem: Problem | None = None
) -> Way:
    """How to make the change of an advice in a notebook."""
    command = f"%cutegen diagnose v{version.number} --apply"
    return session_way(version, versions, command, has_model=has_model, problem=problem)


def session_way(
    version: Version, versions: Sequence[Version], command: str, *, has_model: bool, problem: Problem | None = None
) -> Way:
    """How to make the change of an advice in a session with these versions. `command` lacks the advice's probe."""

    def say(advice: Advice) -> Change:
        found = find_move(version, advice, versions)
        if found.sets:
            return Change(f"{command} {advice.probe}", describe_sets(found), found.made)
        if found.other:
            shell = "!" if command.startswith("%") else ""
            return Change(describe_other(found.other, problem, shell), "", found.made)
        if has_model:
            return Change(f"{command} {advice.probe} (the model writes it)", "", found.made)
        by_hand = "by hand: %%cutegen edit in a notebook; with a model set (%cutegen model) one command asks it"
        why = "every setting that makes it was tried" if found.made else found.passed
        return Change("; ".join(filter(None, (why, by_hand))), "", found.made)

    return say


def file_way(version: Version, problem: str, options: Sequence[str] = ()) -> Way:
    """How to make the change of an advice for a candidate on the command line, with the options of its problem."""
    ending = "".join(f" {shlex.quote(word)}" for word in options)
    at = options.index("--arch") if "--arch" in options else len(options)
    elsewhere = "".join(f" {shlex.quote(word)}" for word in (*options[:at], *options[at + 2 :]))

    def say(advice: Advice) -> Change:
        found = find_move(version, advice)
        if found.other:
            spec = shlex.quote(problem)
            return Change(f'cutegen test {spec} "{found.other}"{elsewhere} --arch {read_arch(found.other)}')
        if not found.program:
            return Change("; ".join(filter(None, (found.passed, "by hand, in the file"))))
        return Change(f'cutegen test {shlex.quote(problem)} "{found.program}"{ending}', describe_sets(found))

    return say


def describe_other(program: str, problem: Problem | None, shell: str = "") -> str:
    """How to try a program for another arch, which a session with one arch does not run: one command where the problem
    has a name or a file, else what to start.
    """
    arch = read_arch(program)
    if problem is None or problem.origin in ("cell", "expression"):
        return f"%cutegen problem with --arch {arch} starts a session for {arch}; there: %cutegen program {program}"
    spec = problem.name if problem.origin == "shipped" else problem.origin
    words = [word for name, value in problem.settings for word in ("--set", f"{name}={value}")]
    words += ["--precision", problem.precision] if problem.precision not in ("declared", "mixed") else []
    ending = " ".join(map(shlex.quote, words))
    return f'{shell}cutegen test {shlex.quote(spec)} "{program}"{f" {ending}" if ending else ""} --arch {arch}'


def read_arch(program: str) -> str:
    """The arch that a program names."""
    found = re.search(r"\.arch\((\w+)\)", program)
    return found[1] if found else ""


def describe_sets(found: Found) -> str:
    """What the next program sets, and why not what is advised before that."""
    return f"{found.sets}; {found.passed}" if found.passed else found.sets


class Found(NamedTuple):
    """The next program that follows an advice, what it sets, which versions have such a change and what became of them,
    and why advised settings before that one are passed over; "" for what there is not. `other` is a program that
    follows it on the device's own arch, where none for the version's arch does.
    """

    program: str = ""
    sets: str = ""
    made: str = ""
    passed: str = ""
    other: str = ""


def find_move(version: Version, advice: Advice, versions: Sequence[Version] = ()) -> Found:
    """The nearest legal program with an advised change that no version has, and that goes on from no failed step."""
    program = version.proposal.candidate.program
    if not program:
        return Found()
    known, failed = map_programs(versions), list_failed_steps(versions)
    made, passed = list[str](), dict[str, list[str]]()
    for move in advice.moves:
        texts = [text for _, text in write_moved(program, [move])]
        why = _describe_none(program, move, tried=bool(texts))
        for text in texts:
            sets = describe_move(move, program, text)
            if (twin := known.get(canonical(text))) is None:
                if extends_failed_step(failed, move, text):
                    why = "only goes on where a step failed"
                    continue
                return Found(text, sets, "; ".join(made), _describe_passed(passed))
            if len(made) < MOST_MADE:
                made.append(f"{sets} in {_describe_end(twin)}")
        for name in name_settings(program, [move]):
            passed.setdefault(why, []).append(name)
    device = devices.match(version.trials[-1].outcome.device) if version.trials else None
    other = write_for(device.arch, program, advice.moves) if device is not None else ""
    return Found(made="; ".join(made), passed=_describe_passed(passed), other=other)


def _describe_passed(passed: Mapping[str, Sequence[str]]) -> str:
    """Settings that are passed over, by the reason: "kept, tile have no larger legal value by themselves"."""
    said = []
    for why, names in passed.items():
        several = len(names) > 1
        words = why.replace("by itself", "by themselves") if several else why
        verb = ("have " if several else "has ") if why.startswith("no ") else ""
        said.append(f"{', '.join(names)} {verb}{words}")
    return "; ".join(said)


def _describe_none(program: str, move: Move, *, tried: bool) -> str:
    """Why a move leads to no program: each value in its direction was tried, or none there is legal, or none at all."""
    towards = {"more": "larger", "less": "smaller", "other": "other"}[move.direction]
    if tried:
        return f"no untried {towards} value"
    is_only = next(write_moved(program, [Move(setting=move.setting, direction="other")]), None) is None
    return f"no {'other' if is_only else towards} legal value by itself"


def describe_change(advice: Advice, candidate: Candidate) -> str:
    """What to change in words; of a program also the settings that are such a change."""
    named = name_settings(candidate.program, advice.moves) if candidate.program else ()
    return f"{advice.action} (as settings: {', '.join(named)})" if named else advice.action


def _describe_end(version: Version) -> str:
    """What became of a version: "v4, rejected: reads x twice"."""
    reason = version.decision.reason if version.decision else ""
    return f"v{version.number}, {version.standing}" + (f": {reason}" if reason else "")


def find_faster(version: Version, versions: Iterable[Version]) -> Version | None:
    """The fastest of the correct versions whose time is less than this one's and of the same provenance."""
    own = version.trials[-1].verdict if version.trials else None
    if own is None or own.time_s is None:
        return None
    found = [(one.trials[-1].verdict, one) for one in versions if one.trials]
    faster = [
        (verdict.time_s, one)
        for verdict, one in found
        if verdict.correct and not verdict.refused and verdict.time_s and verdict.time_s < own.time_s
        if verdict.time_provenance == own.time_provenance
    ]
    return min(faster, key=lambda item: item[0])[1] if faster else None


def describe_exhausted(faster: Version | None) -> str:
    """That the bound leaves no room, with the version that is faster where there is one."""
    if faster is None:
        return "nothing to gain here: the bound leaves no room"
    time = format_seconds(faster.trials[-1].verdict.time_s)
    return f"next to nothing to gain here, by the bound; v{faster.number} is faster ({time}): go on from it"


def describe_room(found: Diagnosis) -> str:
    """The time over the attainable bound; "" if no bound is known. A modelled time below the bound is within the
    error of the model.
    """
    if found.room is None:
        return ""
    if found.room < 1 and found.provenance != "measured":
        return "at the attainable bound"
    return f"{format_times(found.room)} the attainable bound"


def _head(version: Version, found: Diagnosis, faster: Version | None, counters: str) -> list[str]:
    """Class, both stages, the room to the bound, and what there is to say without advice; `counters` shows them."""
    place = "on" if found.provenance == "measured" else "for"
    where = f"{found.provenance} {place} {found.device}" + (f", case {found.case}" if found.case else "")
    lines = [f"v{version.number} is bound by {found.bottleneck} ({where})"]
    lines += [f"  {wrong}"] if (wrong := describe_wrong(version)) else []
    stages = f"  the problem's own limit: {found.analytic}; this kernel's counters: {found.measured}"
    lines.append(stages + (f" ({found.note})" if found.note else ""))
    if found.seconds is not None:
        lines.append(f"  time {format_seconds(found.seconds)}, {describe_room(found) or 'no bound is known'}")
    if found.exhausted:
        said = describe_exhausted(faster)
        more = "" if faster is not None else ". Change the problem, or go on to another kernel."
        lines.append(f"  {said[0].upper()}{said[1:]}{more}")
    elif not found.advice:
        lines.append(f"  No probe found a cause; look at the counters: {counters}")
    return lines


def describe_wrong(version: Version) -> str:
    """That what is counted and timed is of a wrong kernel; "" for a version that is correct or was not tested."""
    if not version.trials or version.trials[-1].verdict.correct:
        return ""
    return f"v{version.number} is NOT CORRECT: its counts and times are those of a wrong kernel"


def _skipped(found: Diagnosis) -> str:
    """The probes that were not asked, in one line; "" if all were."""
    reasons: dict[str, list[str]] = {}
    for name, why in found.skipped:
        reasons.setdefault(why, []).append(name)
    said = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return f"not asked: {said}" if said else ""


class _Block:
    """One advice."""

    def __init__(
        self, number: int, advice: Advice, room: float | None, candidate: Candidate, change: Change, searched: str
    ) -> None:
        self.number, self.advice = number, advice
        self.place = directives.locate(advice, candidate.source)
        self.example = search.find_example(advice.pattern) if number <= MOST_EXAMPLES else None
        self.rows = [
            ("change", describe_change(advice, candidate)),
            ("gain", f"{directives.describe_gain(advice, room)}; elsewhere {directives.describe_gains(advice)}"),
            *([("made in", change.made)] if change.made else []),
            *([("sets", change.sets)] if change.sets else []),
            ("make it", change.way),
            *([("example", f"{searched} {advice.pattern}")] if advice.pattern and self.example is None else []),
        ]

    def text(self) -> str:
        """The advice as lines of text."""
        advice = self.advice
        head = f"{self.number}. {MARKS[advice.severity]} {advice.severity.upper()}  {advice.cause}  [{advice.probe}]"
        lines = ["", *_wrap("", head, 3)]
        if self.place is not None:
            lines.append(f"   line {self.place[0]} | {self.place[1][:90]}")
        lines += [f"   {line}" for line in measures.write_measures(advice.evidence)]
        for name, words in self.rows:
            lines += (
                [f"   {name.ljust(8)} {words}"]
                if name in ("make it", "example")
                else _wrap(f"   {name.ljust(8)} ", words, 12)
            )
        if self.example is not None:
            lines += [f"   example  {self.example.place}", *(f"     {line}" for line in self.example.lines)]
        return "\n".join(lines)

    def html(self) -> str:
        """The advice as HTML."""
        advice, colour = self.advice, COLOURS[self.advice.severity]
        parts = [
            f'<p style="margin:0"><strong>{self.number}. <span style="color:{colour}">{MARKS[advice.severity]} '
            f"{advice.severity}</span> {html.escape(advice.cause)}</strong> "
            f'<span style="opacity:.75">[{html.escape(advice.probe)}]</span></p>'
        ]
        if self.place is not None:
            code = f"line {self.place[0]} | {self.place[1]}"
            parts.append(f'<pre style="margin:4px 0;overflow-x:auto">{html.escape(code)}</pre>')
        if advice.evidence:
            drawing = measures.draw_measures(advice.evidence)
            parts.append(as_image(drawing, measures.describe_measures(advice.evidence)))
        for name, words in self.rows:
            said = html.escape(words)
            shown = f"<code>{said}</code>" if words.startswith(("%cutegen", "cutegen")) else said
            parts.append(f'<p style="margin:2px 0"><span style="opacity:.75">{name}:</span> {shown}</p>')
        if self.example is not None:
            parts.append(_example_html(self.example))
        return f'<div style="border-left:4px solid {colour};padding:2px 10px;margin:10px 0">{"".join(parts)}</div>'


def _example_html(example: Example) -> str:
    code = html.escape("\n".join(example.lines))
    return (
        f'<details><summary><span style="opacity:.75">an example:</span> {html.escape(example.place)}</summary>'
        f'<pre style="margin:4px 0;overflow-x:auto">{code}</pre></details>'
    )


def _wrap(head: str, words: str, indent: int) -> Sequence[str]:
    """The words in lines of COLUMNS characters after a head."""
    return textwrap.wrap(
        head + words, COLUMNS, subsequent_indent=" " * indent, drop_whitespace=True, break_long_words=False
    )
