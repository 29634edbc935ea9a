"""The diagnosis of a version: its class, the room to the bound, then the probes' advice, best first."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Sequence

from workbench import search
from workbench.probes import directives
from workbench.probes.moving import write_moved
from workbench.records import Advice, Diagnosis, Version
from workbench.search import Example
from workbench.structure.kernels.kernel_rules import KernelRule
from workbench.views.figures.svg import inline_svg
from workbench.views.plots import measures
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, format_times
from workbench.views.text.rules_page import rules_block

MOST_EXAMPLES = 3  # advice with an example beside it
COLUMNS = 108
COLOURS = {"high": "#c0504d", "medium": "#b8740b", "low": "#7a7a7a"}
MARKS = {"high": "▲", "medium": "△", "low": "▽"}
Way = Callable[[Advice], str]  # how to make the change


def diagnosis_report(version: Version, found: Diagnosis, way: Way, rules: Sequence[KernelRule] = ()) -> MimeBundle:
    """The diagnosis as text and HTML. `way` says how to make the change of an advice, such as one command.

    `rules` are those of recorded landscapes on whose slow side the version is.
    """
    source = version.proposal.candidate.source
    head = _head(version, found)
    shown = () if found.exhausted else found.advice
    blocks = [_Block(number, advice, source, way(advice)) for number, advice in enumerate(shown, 1)]
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


def notebook_way(version: Version, *, has_model: bool) -> Way:
    """How to make the change of an advice in a notebook."""
    return session_way(version, f"%cutegen diagnose v{version.number} --apply", has_model=has_model)


def session_way(version: Version, command: str, *, has_model: bool) -> Way:
    """How to make the change of an advice in a session. `command` lacks the advice's probe."""

    def say(advice: Advice) -> str:
        if first_move(version, advice):
            return f"{command} {advice.probe}"
        if has_model:
            return f"{command} {advice.probe} (the model writes it)"
        return "by hand: %%cutegen edit in a notebook; with a model set (%cutegen model) one command asks it"

    return say


def file_way(version: Version, problem: str) -> Way:
    """How to make the change of an advice for a candidate on the command line."""

    def say(advice: Advice) -> str:
        moved = first_move(version, advice)
        return f'cutegen test {problem} "{moved}"' if moved else "by hand, in the file"

    return say


def first_move(version: Version, advice: Advice) -> str:
    """The nearest legal program with the advised change; "" if there is none."""
    program = version.proposal.candidate.program
    return next((text for _, text in write_moved(program, advice.moves)), "") if program else ""


def _head(version: Version, found: Diagnosis) -> list[str]:
    """Class, both stages, the room to the bound, and what there is to say without advice."""
    place = "on" if found.provenance == "measured" else "for"
    where = f"{found.provenance} {place} {found.device}" + (f", case {found.case}" if found.case else "")
    lines = [f"v{version.number} is bound by {found.bottleneck} ({where})"]
    stages = f"  the problem's own limit: {found.analytic}; this kernel's counters: {found.measured}"
    lines.append(stages + (f" ({found.note})" if found.note else ""))
    if found.seconds is not None:
        room = "no bound is known" if found.room is None else f"{format_times(found.room)} the attainable bound"
        lines.append(f"  time {format_seconds(found.seconds)}, {room}")
    if found.exhausted:
        lines.append(
            "  Nothing to gain here: the bound leaves no room. Change the problem, or go on to another kernel."
        )
    elif not found.advice:
        lines.append(f"  No probe found a cause; look at the counters: %cutegen profile v{version.number}")
    return lines


def _skipped(found: Diagnosis) -> str:
    """The probes that were not asked, in one line; "" if all were."""
    reasons: dict[str, list[str]] = {}
    for name, why in found.skipped:
        reasons.setdefault(why, []).append(name)
    said = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return f"not asked: {said}" if said else ""


class _Block:
    """One advice."""

    def __init__(self, number: int, advice: Advice, source: str, way: str) -> None:
        self.number, self.advice = number, advice
        self.place = directives.locate(advice, source)
        self.example = search.find_example(advice.pattern) if number <= MOST_EXAMPLES else None
        self.rows = [
            ("change", advice.action),
            ("gain", f"at most {advice.gain:.2f}x here; elsewhere {directives.describe_gains(advice)}"),
            ("make it", way),
            *([("example", f"%cutegen search {advice.pattern}")] if advice.pattern and self.example is None else []),
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
            parts.append(inline_svg(measures.draw_measures(advice.evidence)))
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
