"""The bench of searches: what its tables say of some shares, and one search of it on a real landscape."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import search_on_landscapes as bench  # noqa: E402
import search_tables as tables  # noqa: E402

GOOD, POOR = [0.98, 0.99, 0.99, 0.99, 1.0, 1.0], [0.5, 0.6, 0.7, 0.8, 0.9, 0.96]


def shares(tree_on_b: list[float], seeds: int = 2) -> dict[str, object]:
    def rows(a: list[float], b: list[float]) -> dict[str, object]:
        return {"a": {str(n): a for n in range(seeds)}, "b": {str(n): b for n in range(seeds)}}

    return {
        "greedy": {"none": rows(POOR, POOR), "problem": rows(GOOD, POOR)},
        "tree": {"problem": rows(GOOD, tree_on_b)},
    }


def test_aims_are_judged_by_what_was_run() -> None:
    said = tables.judge_aims(shares(GOOD), ["a", "b"], "problem")
    assert said[0] == "share after 10 tries 0.990 (aim 0.97): reached"
    assert said[1] == "1.41x greedy without priors after 15 tries (aim 1.26x; always the best would be 1.43x): reached"
    assert "on 2 of 2 landscapes (aim 17 of 21): reached" in said[2]
    worse = tables.judge_aims(shares([0.4, 0.5, 0.5, 0.6, 0.6, 0.7]), ["a", "b"], "problem")
    assert worse[0].endswith("0.745 (aim 0.97): not reached") and "on 1 of 2" in worse[2]
    assert worse[3] == "against greedy with the same priors after 60 tries -13.3% (aim above -2 %): not reached"


def test_where_a_baseline_wins_is_said() -> None:
    wins = tables.list_wins(shares([0.4, 0.5, 0.5, 0.6, 0.6, 0.7]), ["a", "b"], "problem")
    assert "greedy on b after 30: 0.900 against 0.600" in wins and not any(" on a " in one for one in wins)
    assert "**0.990**" in tables.landscape_table(shares(GOOD), ["a", "b"], 10, "problem")
    assert "0.990 (0.990 to 0.990)" in tables.share_table(shares(GOOD), ["a", "b"])


def test_a_family_holds_the_same_computation_at_all_sizes() -> None:
    places = bench.landscapes()
    family = {name: bench.family_of(place) for name, place in places.items()}
    products = {
        family[name] for name in ("matmul_bf16_2048", "matmul_tf32_8192", "square_matmul_01", "matmul_fp32_4096")
    }
    assert products == {"matmul"} and family["row_sum"] != family["softmax"]
    assert family["max_over_middle_49"] == family["sum_middle_axis"]


def test_a_search_of_the_bench_and_its_file(tmp_path: Path) -> None:
    place = bench.landscapes()["row_sum"]
    row = bench.run_one(bench.LandscapeSpace(place), place, "random", False, 3, 10)
    assert len(row) == 2 and 0 < row[0] <= row[1] <= 1
    path = tmp_path / "found.json"
    bench.write_results(path, {"after": list(tables.AFTER), "shares": {"random": {"none": {"row_sum": {"3": row}}}}})
    again = bench.read_results(path)
    assert again["shares"]["random"]["none"]["row_sum"]["3"] == row and again["constants"]["random"] == {
        "priors": False
    }


@pytest.mark.skipif(not bench.RESULTS.exists(), reason="the bench was not run")
def test_the_kept_results_make_a_table() -> None:
    assert bench.RESULTS.stat().st_size < 1 << 20
    found = json.loads(bench.RESULTS.read_text())
    assert "| tree |" in tables.format_tables(found, bench.TUNED_ON)
