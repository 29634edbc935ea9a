"""What measured programs say of the time model on a device that it was not fitted on."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.analysis import devices
from workbench.analysis.time_model import (
    compare_measured,
    compare_times,
    describe_fit,
    estimate_time,
    find_refinement,
)
from workbench.analysis.time_model.measured import (
    SHIPPED,
    MeasuredProgram,
    add_user_programs,
    file_name,
    find_programs,
    load_programs,
    user_file,
)
from workbench.analysis.time_model.refinement import PLAIN, DeviceRow, Refinement, refine
from workbench.errors import UserError

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

H100, H200, A100 = (devices.find(name) for name in ("H100", "H200", "A100"))
WIDTH = 0.4


@pytest.fixture(autouse=True)
def _own_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def shipped() -> tuple[MeasuredProgram, ...]:
    return load_programs(SHIPPED / file_name("H100"))


def make_rows(errors: list[float], programs: int = 1, width: float = WIDTH) -> list[DeviceRow]:
    """Programs of one problem for each error, all with that error."""
    return [
        DeviceRow(
            key=str(problem),
            problem=str(problem),
            program=str(program),
            measured_s=math.exp(error),
            modelled_s=1.0,
            low_s=math.exp(-width),
            high_s=math.exp(width),
        )
        for problem, error in enumerate(errors)
        for program in range(programs)
    ]


def is_inside(row: DeviceRow, refined: Refinement) -> bool:
    return abs(row.error - refined.shift) <= row.width * refined.factor


def test_the_formulas_are_those_of_the_text() -> None:
    found = refine(make_rows([0.3, 0.1, 0.2]))
    assert found.shift == pytest.approx(0.6 / 4)
    t_4, t_7 = 2.131847, 1.894579  # tables of Student's t, 0.95
    squares = sum(((error - others) / WIDTH) ** 2 for error, others in ((0.3, 0.1), (0.1, 0.5 / 3), (0.2, 0.4 / 3)))
    assert found.factor == pytest.approx(t_7 * math.sqrt((4 / t_4**2 + squares) / 7), rel=2e-3)
    assert (found.problems, found.rows) == (3, 3)


def test_many_programs_of_a_problem_count_as_one() -> None:
    once, often = refine(make_rows([0.3, 0.1, 0.2])), refine(make_rows([0.3, 0.1, 0.2], programs=20))
    assert (often.shift, often.factor) == (pytest.approx(once.shift), pytest.approx(once.factor))
    assert often.rows == 60


@pytest.mark.parametrize("errors", [[], [0.0], [0.01, -0.01], [0.9], [0.9, 1.1]])
def test_few_problems_only_widen(errors: list[float]) -> None:
    found = refine(make_rows(errors))
    assert found.shift == 0 and found.factor >= 1
    assert (found.factor > 1) == any(abs(error) > WIDTH for error in errors)


@pytest.mark.parametrize(("shift", "spread"), [(0.0, 0.05), (0.4, 0.24), (-0.3, 0.5)])
def test_nine_of_ten_new_problems_are_inside(shift: float, spread: float) -> None:
    drawn = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        errors = list(drawn.normal(shift, spread, 11))
        *known, new = make_rows(errors)
        inside.append(is_inside(new, refine(known)))
    assert np.mean(inside) >= 0.86
    if spread > 0.2:  # with less, the prior keeps the interval wider than it needs to be
        assert np.mean(inside) <= 0.96


def test_good_times_narrow_the_interval_and_bad_ones_widen_it() -> None:
    assert refine(make_rows([0.02, -0.03, 0.01, 0.0, 0.02, -0.01])).factor < 0.8
    assert refine(make_rows([0.8, -0.9, 0.7, -0.6, 0.8, -0.7])).factor > 2


def test_only_the_measured_device_is_refined(shipped: tuple[MeasuredProgram, ...]) -> None:
    one = shipped[0]
    refined = find_refinement(H100)
    assert refined.problems >= 8 and refined.shift and find_refinement(H200) == find_refinement(A100) == PLAIN
    plain = estimate_time(one.launches, one.builds, H100, one.work, refinement=PLAIN)
    found = estimate_time(one.launches, one.builds, H100, one.work)
    assert found.seconds == pytest.approx(plain.seconds * math.exp(refined.shift))
    width = math.log(plain.high_s / plain.seconds) * refined.factor
    assert math.log(found.high_s / found.seconds) == pytest.approx(width)
    assert compare_times(found, found).speedup == 1
    assert f"rests on {refined.problems} problems measured there" in describe_fit(H100)
    assert "they rest on no problem" in describe_fit(A100) and "rest" not in describe_fit(H200)
    untouched = estimate_time(one.launches, one.builds, H200, one.work)
    assert untouched == estimate_time(one.launches, one.builds, H200, one.work, refinement=PLAIN)


def test_a_users_measurements_count_for_his_device_at_once(shipped: tuple[MeasuredProgram, ...]) -> None:
    here = [
        dataclasses.replace(one, device="A100", seconds=3 * compare_measured(one, A100).modelled_s) for one in shipped
    ]
    assert add_user_programs(here[:1], "A100") == user_file("A100")
    assert find_refinement(A100).problems == 1 and find_refinement(A100).shift == 0
    add_user_programs(here, "A100")
    add_user_programs(here, "A100")
    found = find_refinement(A100)
    assert len(find_programs("A100")) == len(here) == found.rows
    assert found.shift == pytest.approx(math.log(3) * found.problems / (1 + found.problems))
    assert find_refinement(H100).rows == len(shipped)
    mine = [dataclasses.replace(shipped[0], seconds=1.0)]
    add_user_programs(mine, "H100")
    assert {one.seconds for one in find_programs("H100")} > {1.0} and len(find_programs("H100")) == len(shipped)


def test_a_file_that_is_none_is_named() -> None:
    path = user_file("H100")
    path.parent.mkdir(parents=True)
    for text in ("{}\n", "no json\n", json.dumps({"seconds": 1}) + "\n"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"h100\.jsonl holds no measured programs .*; remove it"):
            find_refinement(H100)


def test_each_shipped_problem_is_judged_by_the_others_alone(shipped: tuple[MeasuredProgram, ...]) -> None:
    from device_tables import leave_one_out, list_rows, summarise

    rows = list_rows()
    assert len(rows) == len(shipped) and len({row.key for row in rows}) >= 8
    pairs = leave_one_out(rows)
    changed = [
        dataclasses.replace(row, measured_s=row.measured_s * 9) if row.key == rows[0].key else row for row in rows
    ]
    assert leave_one_out(changed)[0][1] == pairs[0][1] and leave_one_out(changed)[-1][1] != pairs[-1][1]
    inside, factor, _ = summarise(pairs)
    assert inside >= 0.75 * len(rows) and factor < 1.5
