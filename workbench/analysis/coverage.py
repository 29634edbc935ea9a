"""What the cases of an outcome tested of a problem, and what they did not."""

from __future__ import annotations

from workbench.records import Check, Facts, Outcome, Refusal, Size

LAYOUT = " layout"  # the end of the names of layouts
REUSED = "a result lies in the memory of an earlier one: copy what you keep of a call"
SMALL = 8  # extents below are windows and groups, which no kernel tiles


def untested_sizes(facts: Facts, outcome: Outcome) -> tuple[str, ...]:
    """A sentence for each size that had one value in all cases that were run: "N was only tested at 8192".

    Likewise for the numbers that forward is given: a kernel may have them written in.
    """
    run = {check.case for check in outcome.checks}
    cases = [case for case in facts.cases if case.name in run]
    if not cases or all(case.name == "full" for case in cases):
        return ()  # a GPU runs the full case, and nothing else is asked of it
    found = []
    for size in facts.sizes:
        values = {int(str(dict(case.settings).get(size.name, size.value))) for case in cases}
        if len(values) == 1:
            found.append(f"{_title(size)} {_verb(size)} only tested at {values.pop()}")
    for value, extents in fixed_extents(facts).items():
        found.append(f"{', '.join(extents)} {'were' if len(extents) > 1 else 'was'} only tested at {value}")
    others = {
        one.name
        for one in facts.given
        if any(dict(case.settings).get(one.key, one.value) != one.value for case in cases)
    }
    known = {str(size.value) for size in facts.sizes} | others
    for name, kind, text in facts.plain_arguments:
        if kind in ("int", "float") and not known.intersection((name, text)):
            found.append(f"forward's argument {name} was only tested at {text}")
    return tuple(found)


def unreached_numbers(facts: Facts, outcome: Outcome) -> tuple[str, ...]:
    """A sentence for each number of the text beyond which no case that was run goes."""
    return () if any(check.case == "full" for check in outcome.checks) else facts.unreached


def fixed_extents(facts: Facts) -> dict[int, tuple[str, ...]]:
    """Extents of parameters that are a number of the text in every case, since no size decides them, by that number."""
    known = {extent for size in facts.sizes for extent in size.extents}
    varied = [size.value for size in facts.sizes if size.varied and size.value > 1]
    said = {size.value for size in facts.sizes if not size.varied}
    full = {spec.name.partition(":")[2]: spec.shape for spec in facts.full if ":" in spec.name}
    found: dict[int, tuple[str, ...]] = {}
    for spec in facts.parameters:
        for axis, (extent, at_full) in enumerate(zip(spec.shape, full.get(spec.name, ()), strict=False)):
            follows = f"{facts.state_label(spec.name)}[{axis}]" in known or any(extent % value == 0 for value in varied)
            if extent == at_full and extent >= SMALL and extent not in said and not follows:
                found[extent] = (*found.get(extent, ()), f"{spec.name}[{axis}]")
    return found


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
    least = min((value for _, value in settings if type(value) is int), default=0)
    edge = refusal.case in ("tiny", "empty")
    named = [f"{name}={value}" for name, value in settings if not edge or value == least]
    return f"{', '.join(named) or f'case {refusal.case}'} ({refusal.message})"


def tested_cases(checks: tuple[Check, ...]) -> str:
    """The cases that were compared, in a phrase."""
    return ", ".join(dict.fromkeys(check.case for check in checks))


def tested_inputs(facts: Facts, outcome: Outcome) -> tuple[str, ...]:
    """The sizes, values and layouts of the inputs that were compared: "rows from 1 to 257", "values: drawn, large"."""
    run = {check.case for check in outcome.checks}
    found = []
    numbers = [facts.other_numbers(case.name) for case in facts.cases if case.name in run]
    for one in facts.given:
        others = [values[one.name] for values in numbers if one.name in values]
        found += [f"{one.name} at {', '.join(map(str, dict.fromkeys((one.value, *others))))}"] if others else []
    for size in facts.sizes:
        values = sorted({facts.size_values(case.name)[size.name] for case in facts.cases if case.name in run})
        if len(values) > 1:
            found.append(f"{size.name} from {values[0]} to {values[-1]}")
    varied = {case.name for case in facts.cases if facts.other_numbers(case.name)}
    kinds = [*dict.fromkeys(check.values for check in outcome.checks if check.case not in varied)]
    layouts = [kind.removesuffix(LAYOUT) for kind in kinds if kind.endswith(LAYOUT)]
    values_of = [kind or "drawn" for kind in kinds if not kind.endswith(LAYOUT)]
    lines = [", ".join(found)] if found else []
    lines += [f"values: {', '.join(values_of)}"] if len(values_of) > 1 else []
    lines += [f"layouts: as given, {', '.join(layouts)}"] if layouts else []
    return (*lines, *([REUSED] if outcome.reused else []))
