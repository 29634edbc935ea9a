"""Turns comparisons with the reference into the failure of a wrong result. Only this module decides what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.executors.jobs.trials import FAINT, FAINT_ONLY, LARGE
from workbench.records import Check, Facts, Failure, GivenNumber, Launch

UNMAPPED = "these parameters have no partner in Model by name and shape, so they kept their own values: "
LARGER = ("", LARGE)  # values that a wrong eps hardly changes
EPS = (
    "rows of zeros or tiny values are wrong, others right: compare the value and the place of an eps, as in a norm, "
    "with the reference's, and look for a term that larger values hide, as a bias or a clamp"
)
FOLLOWED = ("random", "state_assigned")  # kinds of degeneracies that a candidate must follow


def wrong_result(
    checks: Sequence[Check],
    unmapped_parameters: Sequence[str] = (),
    launches: Sequence[Launch] = (),
    facts: Facts | None = None,
) -> Failure | None:
    """The failure of the first failed comparison; None if all passed.

    `unmapped_parameters` of the reference have no partner in the candidate, which may be the cause.
    On the emulator the launches say which lines store. `facts` are the problem's: they name several outputs, those of
    their degeneracies that a candidate must follow are repeated, and numbers that are given to forward may be written
    into a candidate that is wrong at others.
    """
    failed = [check for check in checks if not check.passed]
    if not failed:
        return None
    unasked = [check.of for check in failed if check.unasked]
    if unasked:
        return _unasked_change(unasked, failed[0].case)
    tiny = _find_tiny_rows(checks)
    wrong = tiny or failed[0]
    is_one = not wrong.of and not any(check.output for check in checks)  # which of several a line stores is not known
    lines = _storing_lines(launches) if is_one else []
    stored = f"lines {', '.join(map(str, lines))} store to global memory" if len(lines) > 1 else ""
    is_nan = math.isnan(wrong.worst_got or 0.0)
    hint = UNMAPPED + ", ".join(unmapped_parameters) if unmapped_parameters else ""
    followed = next((item.message for item in (facts.degeneracies if facts else ()) if item.kind in FOLLOWED), "")
    title = _title_of(wrong, facts)
    message, found = _describe(wrong, failed, title)
    if written := _say_written_in(wrong, checks, facts.given if facts else ()):
        message = f"wrong {title} at {wrong.values}; {written} ({wrong.message})"
    return Failure(
        stage="check",
        kind="not_finite" if is_nan else "wrong_result",
        message=message,
        line=lines[0] if len(lines) == 1 else None,
        hint="; ".join(part for part in (found, EPS if tiny else "", stored, hint, followed) if part),
    )


def _title_of(wrong: Check, facts: Facts | None) -> str:
    """What was compared, by its name."""
    titles = facts.result_titles if facts else ()
    return wrong.of or (titles[wrong.output] if wrong.output < len(titles) else "result")


def _find_tiny_rows(checks: Sequence[Check]) -> Check | None:
    """The failed comparison of inputs with tiny rows if those of larger values at the same sizes passed: it says most.

    Small values are left out of these: a wrong eps shows there too, and as little else.
    """
    faint = (check for check in checks if check.values in (FAINT, FAINT_ONLY) and not check.passed and not check.of)
    for wrong in faint:
        alike = [one for one in checks if (one.case, one.output, one.of) == (wrong.case, wrong.output, "")]
        larger = [one.passed for one in alike if one.values in LARGER]
        if larger and all(larger):
            return wrong
    return None


def _describe(wrong: Check, failed: Sequence[Check], title: str) -> tuple[str, str]:
    """(message, what is said of the cause) of the comparison `wrong`, one of `failed`, of the output `title`."""
    values = f" with inputs of {wrong.values}" if wrong.values else ""
    message = f"wrong {title} at case {wrong.case}{values}: {wrong.message}"
    if not wrong.untouched:
        return message, wrong.wrong.sentence if wrong.wrong else ""
    untouched = ", ".join(dict.fromkeys(check.of for check in failed if check.untouched))
    message = f"the candidate does not update its {untouched}, as the reference does; {message}"
    return message, "store the new value into that tensor in each call"


def _say_written_in(wrong: Check, checks: Sequence[Check], given: Sequence[GivenNumber]) -> str:
    """What may be the cause if a candidate is right at the numbers of the problem and wrong at others; else ""."""
    varied = [one for one in given if _names(wrong, one)]
    usual = [check for check in checks if not any(_names(check, one) for one in given)]
    if not varied or not all(check.passed for check in usual):
        return ""
    own = ", ".join(f"{one.name} = {one.value}" for one in varied)
    what, are = ("values", "are the numbers") if len(varied) > 1 else ("value", "is the number")
    return f"at {own}, the {what} in get_inputs, it is right: {are} written into the kernel?"


def _names(check: Check, one: GivenNumber) -> bool:
    """Whether a comparison says that forward was given another number."""
    return any(text.startswith(f"{one.name} = ") for text in check.values.split(", "))


def _unasked_change(names: Sequence[str], case: str) -> Failure:
    """The failure of a candidate that changed what the reference leaves as it is."""
    changed = ", ".join(dict.fromkeys(names))
    return Failure(
        stage="check",
        kind="input_modified" if all(name.startswith("input ") for name in names) else "state_modified",
        message=f"the candidate changed its {changed}, which the reference does not change (case {case})",
        hint="write to the output, and to the state that the reference updates; clone what else you need to change",
    )


def _storing_lines(launches: Sequence[Launch]) -> list[int]:
    """The lines that store to global memory in the last launch that does."""
    found = ([one.line for one in launch.lines if one.global_write_bytes] for launch in reversed(launches))
    return next((sorted(lines) for lines in found if lines), [])
