"""Spaces of `cutegen tune`: settings of a program, constants of a file, and requests that cannot be."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from workbench import problems
from workbench.errors import UserError
from workbench.tuning.space import name_row, parse_over, vary_file, vary_program
from workbench.tuning.tune import TuneRequest, make_plan

FILE = """SPACE = {"TILE": (32, 64), "STAGES": (2, 3, 4)}
TILE = 64
STAGES = 2


class ModelNew:
    pass
"""


def test_over_names_settings_with_values_or_all() -> None:
    assert parse_over("tile=128x128x64|128x256x64,stages,schedule=pingpong") == {
        "tile": ((128, 128, 64), (128, 256, 64)),
        "stages": (),
        "schedule": ("pingpong",),
    }
    with pytest.raises(UserError, match="write NAME or NAME=VALUE"):
        parse_over("tile=")


def test_every_legal_combination_comes_once_and_the_program_itself_first() -> None:
    found = vary_program("softmax(x) .arch(sm_90a)", {"threads_per_row": (32, 128), "vector": (1, 4)})
    assert found[0] == "softmax(x) .arch(sm_90a)"
    assert len(found) == len(set(found)) == 5
    assert "softmax(x) .arch(sm_90a) .threads_per_row(128) .vector(4)" in found


def test_a_value_that_is_legal_in_no_combination_is_refused() -> None:
    with pytest.raises(UserError, match=r"--over threads_per_row: 33 is legal in no combination: .*threads_per_row"):
        vary_program("softmax(x) .arch(sm_90a)", {"threads_per_row": (32, 33)})
    some = {"schedule": ("pingpong", "cooperative"), "tile": ((64, 128, 64), (128, 128, 64))}
    assert len(vary_program("gemm(a, b) .arch(sm_90a) .mma(bf16)", some)) >= 2  # what is legal only here and there


def test_a_setting_that_the_program_has_not_is_refused_with_those_it_has() -> None:
    with pytest.raises(UserError, match="--over tile: the program has no such setting"):
        vary_program("softmax(x)", {"tile": ()})


def test_a_file_is_written_out_for_every_combination_of_its_space() -> None:
    found = vary_file(FILE, "best.py")
    assert len(found) == 6
    first = name_row((("TILE", 64), ("STAGES", 2)))
    assert next(iter(found)) == first == "model_new() .TILE(64) .STAGES(2)"
    text = found["model_new() .TILE(32) .STAGES(4)"]
    assert "\nTILE = 32\n" in text and "\nSTAGES = 4\n" in text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("TILE = 1\n", "declares no space"),
        ('SPACE = {"TILE": (1, 2)}\n', "TILE of SPACE needs numbers, and a module constant"),
        ("SPACE = [1]\n", "best.py:1: write SPACE as"),
    ],
)
def test_a_space_that_cannot_be_is_said_with_its_line(source: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        vary_file(source, "best.py")


def test_requests_that_exclude_each_other(tmp_path: Path) -> None:
    from workbench.cli.tuning import make_request

    given = {"program": "", "over": "", "file": "", "budget": 1, "seconds": 1.0, "out": "", "dry_run": False}
    for changed, said in (
        ({"program": "softmax(x)", "file": "a.py"}, "exclude each other"),
        ({"over": "vector"}, "give --program"),
        ({"budget": 0}, "over 0"),
        ({"file": str(tmp_path / "none.py")}, "no file at"),
    ):
        with pytest.raises(UserError, match=said):
            make_request(argparse.Namespace(**{**given, **changed}))


def test_a_plan_of_the_planner_has_no_more_configurations_than_the_budget() -> None:
    problem = problems.load("softmax", settings=(("batch_size", 16), ("dim", 64)))
    plan = make_plan(TuneRequest(problem=problem, budget=2), "H200")
    assert len(plan.programs) == len(plan.sources) == 2
