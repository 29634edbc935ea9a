"""The lessons of earlier sessions as text, and the changes that a user makes to them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from workbench import lessons
from workbench.records import Lesson

SHOWN = 40


def change_lessons(arguments: Namespace) -> str:
    """Forget lessons or write a note, as the arguments say. Returns what was done; "" if nothing was asked for."""
    if arguments.forget:
        count = lessons.forget(arguments.forget)
        return f"forgot {count} lesson{'s' * (count != 1)}"
    if arguments.note:
        return f"noted: {lessons.describe(lessons.annotate(arguments.note, arguments.text))}"
    return ""


def select_lessons(kind: str) -> tuple[Lesson, ...]:
    """The lessons of a kind of problem, or all, newest first."""
    return tuple(one for one in reversed(lessons.read()) if not kind or one.kind == kind)


def format_lessons(found: Sequence[Lesson]) -> str:
    """A line for each lesson, then the rates of probes and the plateaus."""
    where = lessons.path()
    if where is None:
        return f"lessons are switched off ({lessons.ENV}={lessons.OFF})"
    if not found:
        return f"no lessons yet; each tested change of a version leaves one in {where}"
    lines = [f"{one.id}  {one.at[:10]}  {one.session} v{one.version}  {lessons.describe(one)}" for one in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"... and {len(found) - SHOWN} older ones")
    rates = lessons.experience(found)
    if rates:
        told = ", ".join(f"{name} {rate.helped} of {rate.tried}" for name, rate in sorted(rates.items()))
        lines.append(f"helped, by the advice that they followed: {told}")
    for session, kind, count in lessons.find_plateaus(found[::-1]):
        lines.append(f"{session} ({kind}) ended on a plateau: {count} changes without a gain")
    lines.append(f"kept in {where}, for you alone; --forget ID or --forget all removes, --note ID --text TEXT edits")
    return "\n".join(lines)
