"""The comparison of policies says of known runs what is known of them, and processes share one file of rows."""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import comm_rand_in_host_memory as bench
import graph_comparison as comparison

from workbench.graphs.batches import Policy
from workbench.graphs.locality import EpochLocality
from workbench.graphs.sweep import Row, append_row, read_rows
from workbench.graphs.training import Parts, Result, Training

LOCALITY = EpochLocality(
    batches=2, unique_rows=50, feature_bytes=5000, edges=90, inside_share=0.9, label_bits=3, hit_rate=0.2
)
PARTS = Parts(draw_s=0.1, gather_s=0.6, copy_s=0.3, step_s=0.2, rows=4e7)


def run(policy: Policy, curve: tuple[float, ...], epoch_s: float, prepare_s: float = 0.0, rate: float = 0.01) -> Result:
    return Result(
        graph="sbm",
        method="given",
        modularity=0.9,
        prepare_s=prepare_s,
        policy=policy,
        training=Training(learning_rate=rate),
        device="GPU",
        locality=LOCALITY,
        epoch_s=epoch_s,
        sample_s=0.1,
        val=max(curve),
        test=max(curve) - 0.01,
        best_epoch=1 + curve.index(max(curve)),
        curve=curve,
        elapsed_s=tuple(epoch_s * (at + 1) for at in range(len(curve))),
        parts=PARTS,
    )


def seeds(name: str, mix: float = 1.0) -> list[Policy]:
    return [Policy(name=name, mix=mix, seed=seed) for seed in (0, 1)]


def test_times_to_convergence_count_preparation_and_every_seed() -> None:
    stock = [run(policy, (0.5, 0.8, 0.9, 0.9), 2.0) for policy in seeds("uniform")]
    fast = [run(policy, (0.5, 0.8, 0.894, 0.9), 0.5, prepare_s=0.5) for policy in seeds("comm-rand", 0.1)]
    never = [run(policy, (0.5, last), 0.5) for policy, last in zip(seeds("cluster-gcn"), (0.9, 0.7), strict=True)]
    lines = {line.policy: line for line in comparison.compare([*stock, *fast, *never])}
    assert lines["comm-rand mix=0.1 p=0.5"].speedup == pytest.approx(3 * 2.0 / (0.5 + 3 * 0.5))
    assert lines["comm-rand mix=0.1 p=0.5"].epoch_speedup == pytest.approx(4)
    assert lines["comm-rand mix=0.1 p=0.5"].points == pytest.approx(0)
    assert lines["cluster-gcn"].speedup == 0 and lines["cluster-gcn"].points == pytest.approx(-10)
    short = comparison.summarise_policies(list(lines.values())).splitlines()
    assert "| cluster-gcn | 0 of 1 | - | - | - | 4.00 | 4.00 | 10.00 | 10.00 |" in short
    assert "| comm-rand mix=0.1 p=0.5 | 1 of 1 | 3.00 | 3.00 | 3.00 | 4.00 | 4.00 | 0.00 | 0.00 |" in short
    assert short[-1] == "| COMM-RAND in its paper |  | 1.80 | 2.76 | - | - | - | 0.42 | 1.79 |"
    whole = comparison.tabulate(list(lines.values()))
    assert "| 4.0 | " in whole and "| 0.600 | 0.300 | 0.200 | 0.50 | 2.00 | 3.00 |" in whole  # 4e7 rows of 100 bytes


def test_seeds_that_uniform_batches_lack_are_left_out() -> None:
    first, second = seeds("comm-rand", 0.1)
    results = [run(seeds("uniform")[0], (0.9,), 2.0), run(first, (0.9,), 1.0), run(second, (0.1,), 1.0)]
    line = comparison.compare(results)[1]
    assert len(line.results) == 1 and line.speedup == 2


def test_the_pilot_takes_the_best_rate_at_which_uniform_batches_need_epochs() -> None:
    stock, other = seeds("uniform")[0], seeds("comm-rand", 0.1)[0]
    slow, fast = (0.1,) * 7, (0.1,) * 6
    tried = [
        run(stock, (*slow, 0.80), 1.0, rate=0.1),
        run(stock, (*slow, 0.85), 1.0, rate=0.2),
        run(stock, (*fast, 0.90), 1.0, rate=0.3),
        run(other, (*slow, 0.99), 1.0, rate=0.4),
    ]
    assert bench.choose_rates(tried) == {"sage": 0.2}
    assert bench.choose_rates(tried[2:]) == {"sage": 0.3}


def test_the_jobs_are_all_trainings_seed_by_seed() -> None:
    jobs = bench.list_jobs(("middle", "dense"), {"sage": 0.1, "gat": 0.2}, 3, small=False)
    assert len(set(jobs)) == len(jobs) == 3 * 2 * 2 * 6
    assert [job.policy.seed for job in jobs] == sorted(job.policy.seed for job in jobs)
    assert {(job.model, job.learning_rate) for job in jobs} == {("sage", 0.1), ("gat", 0.2)}
    assert jobs[0].policy.name == "uniform" and jobs[1].policy.knobs == (0.125, 0.9)
    assert len(bench.list_pilots(("sage",), small=True)) == len(bench.RATES)


def test_rows_of_several_writers_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = Row(key="a", result=run(Policy(), (0.5,) * 400, 1.0))
    path.write_text('{"cut off')
    writers = [
        threading.Thread(
            target=lambda n=n: [append_row(path, dataclasses.replace(row, key=f"{n}-{at}")) for at in range(20)]
        )
        for n in range(4)
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    found = list(read_rows(path))
    assert {one.key for one in found} == {f"{n}-{at}" for n in range(4) for at in range(20)} and len(found) == 80
    assert found[0].result == row.result
