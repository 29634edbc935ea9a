"""What the author of a problem knows of it, and the checks that it was opened and planned as that."""

from __future__ import annotations

from workbench.proposers.coverage import find_coverage
from workbench.records import Opened, record


@record
class Expected:
    """Precision, ties, sizes that cannot change, values of sizes, dtypes of inputs and results."""

    sizes: str  # name=value
    precision: str = "fp32"
    ties: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("float32",)
    outputs: tuple[str, ...] = ("float32",)


def check_opened(opened: Opened, wanted: Expected) -> None:
    """It was opened as its author meant it."""
    facts = opened.facts
    full = next(case for case in facts.cases if case.name == "full")
    assert opened.problem.precision == wanted.precision
    assert sorted("=".join(sorted(group)) for group in opened.problem.tie) == sorted(
        "=".join(sorted(tie.split("="))) for tie in wanted.ties
    )
    assert {f"{size.name}={size.value}" for size in facts.sizes} == {*wanted.sizes.split()}
    assert sorted(size.name for size in facts.sizes if not size.varied) == sorted(wanted.kept)
    assert tuple(spec.dtype for spec in full.inputs) == wanted.inputs
    assert tuple(spec.dtype for spec in full.outputs) == wanted.outputs


def check_planned(opened: Opened) -> None:
    """The planner has a program for it."""
    found = find_coverage(opened.problem, opened.facts, arch="sm_80", device="H200")
    assert found.program, found.reason
