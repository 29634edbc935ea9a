"""Rules on recorded times as text and HTML: under a landscape's heat map, and below a diagnosis."""

from __future__ import annotations

import html
from collections.abc import Sequence

from workbench.landscapes import Landscape
from workbench.records import Problem, Version
from workbench.structure.kernels.kernel_rules import KernelRule, explain_program, rules_of_landscape
from workbench.structure.kernels.landscape_rows import context_attributes
from workbench.views.text.mime_bundle import WHOLE_WORDS, MimeBundle, format_seconds

SHOWN = 5
SAID_OF_PROGRAM = 3


def landscape_rules(place: Landscape) -> MimeBundle | None:
    """What the slow rows of a landscape have in common; None where no rule of the workbench holds there."""
    rules = rules_of_landscape(place)[:SHOWN]
    if not rules:
        return None
    head = f"What makes programs slow here: rules with {place.name}'s own pairs, each of two that differ in one setting"
    lines = [head, *(line for rule in rules for line in _lines(rule))]
    items = "".join(_item(rule) for rule in rules)
    return MimeBundle(
        "\n".join(lines),
        html=f"<div><p><strong>{html.escape(head)}</strong></p><ul>{items}</ul></div>",
    )


def with_rules(shown: MimeBundle, place: Landscape) -> MimeBundle:
    """A picture of a landscape, with its rules as an output below it where there are any."""
    rules = landscape_rules(place)
    if rules is None:
        return shown
    return MimeBundle(f"{shown.text}\n\n{rules.text}", svg=shown.svg, parts=(shown, rules))


def program_rules(version: Version, problem: Problem) -> tuple[KernelRule, ...]:
    """The rules on whose slow side a version's program is; () for a version without a program."""
    from workbench import landscapes

    program = version.proposal.candidate.program
    place = landscapes.find_near(problem)
    return explain_program(program, context_attributes(place) if place else {})[:SAID_OF_PROGRAM] if program else ()


def rules_block(rules: Sequence[KernelRule]) -> MimeBundle:
    """A block of a diagnosis: rules that hold for the version's program, each with a recorded pair."""
    head = "Recorded landscapes say of programs like this one (other problems too; check it here):"
    return MimeBundle(
        "\n".join(["", head, *(line for rule in rules for line in _lines(rule))]),
        html=f'<p style="margin:8px 0 2px">{html.escape(head)}</p><ul>{"".join(map(_item, rules))}</ul>',
    )


def _lines(rule: KernelRule) -> list[str]:
    pair = rule.pair
    return [
        f"  {rule}",
        f"      {format_seconds(pair.slow_s):>9}  {pair.slow}",
        f"      {format_seconds(pair.fast_s):>9}  {pair.fast}  ({pair.landscape}, recorded)",
    ]


def _item(rule: KernelRule) -> str:
    said, *pair = _lines(rule)
    shown = "\n".join(line.strip() for line in pair)
    return f'<li>{html.escape(said.strip())}<pre style="{WHOLE_WORDS}">{html.escape(shown)}</pre></li>'
