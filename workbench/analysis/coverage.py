"""What the cases of an outcome tested of a problem, and what they did not."""

from __future__ import annotations

from workbench.records import Check, Facts, Outcome, Refusal, Size


def untested_sizes(facts: Facts, outcome: Outcome) -> tuple[str, ...]:
    """A sentence for each size that had one value in all cases that were run: "N was only tested at 8192"."""
    run = {check.case for check in outcome.checks}
    cases = [case for case in facts.cases if case.name in run]
    if not cases or all(case.name == "full" for case in cases):
        return ()  # a GPU runs the full case, and nothing else is asked of it
    found = []
    for size in facts.sizes:
        values = {int(str(dict(case.settings).get(size.name, size.value))) for case in cases}
        if len(values) == 1:
            found.append(f"{_title(size)} {_verb(size)} only tested at {values.pop()}")
    return tuple(found)


def _title(size: Size) -> str:
    return ", ".join((size.name, *size.tied))


def _verb(size: Size) -> str:
    return "were" if size.tied else "was"


def refused_inputs(facts: Facts, outcome: Outcome) -> tuple[str, ...]:
    """The sizes of each case and the layouts that the candidate refused: "batch_size=1, dim=1 (ValueError: ...)"."""
    return tuple(
        dict.fromkeys(
            _describe_refusal(facts, refusal)
            for refusal in outcome.refusals
            if not any(check.case == refusal.case and check.trial == refusal.trial for check in outcome.checks)
        )
    )


def _describe_refusal(facts: Facts, refusal: Refusal) -> str:
    if refusal.layout:
        return f"inputs of {refusal.layout} ({refusal.message})"
    settings = next((case.settings for case in facts.cases if case.name == refusal.case), ())
    least = min((int(str(value)) for _, value in settings), default=0)
    edge = refusal.case in ("tiny", "empty")
    named = [f"{name}={value}" for name, value in settings if not edge or int(str(value)) == least]
    return f"{', '.join(named) or f'case {refusal.case}'} ({refusal.message})"


def tested_cases(checks: tuple[Check, ...]) -> str:
    """The cases, and the special values and layouts that were compared, in a phrase."""
    cases = ", ".join(dict.fromkeys(check.case for check in checks))
    kinds = dict.fromkeys(check.values for check in checks if check.values)
    return f"{cases} (inputs also of {', '.join(kinds)})" if kinds else cases
