"""The planner's ladder for rows that a CTA's registers do not hold: no rung of it is rejected by the language."""

from __future__ import annotations

import pytest

from workbench import problems
from workbench.problems import inspection
from workbench.proposers.binding import binding_of, compile_program
from workbench.proposers.planner import list_rungs
from workbench.proposers.rung_programs import write_program
from workbench.records import Ask


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("expression", "inputs", "kept"),
    [
        ("torch.softmax(x, -1)", "x: f32[64, 131072]", ["1024 threads keep the row"]),
        ("torch.softmax(x, -1)", "x: f32[64, 1048576]", []),
        ("F.cross_entropy(x, t)", "x: f32[64, 131072], t: i64[64]", ["1024 threads keep the row"]),
    ],
)
def test_every_rung_compiles(expression: str, inputs: str, kept: list[str], arch: str) -> None:
    opened = inspection.open_problem(problems.from_expression(expression, inputs=inputs))
    found, rungs = list_rungs(Ask(problem=opened.problem, facts=opened.facts, arch=arch))
    binding = binding_of(opened.problem, opened.facts, found)
    for rung in rungs:
        assert compile_program(write_program(found, rung, arch), binding)
    assert [rung.title for rung in rungs if rung.title.endswith(("kept in registers", "keep the row"))] == kept
