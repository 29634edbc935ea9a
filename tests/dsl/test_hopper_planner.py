"""The planner on Hopper: wgmma first, chosen by size, then configurations ranked by the model.

Every proposal computes the product.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.analysis import devices
from workbench.executors.inspector import WorkerInspector
from workbench.language import Call, check, parse
from workbench.proposers.ladders import heuristics
from workbench.proposers.ladders.gemm_hopper import Choice, list_choices
from workbench.proposers.ladders.gemm_hopper_model import busy_share, copied_operands, model_time
from workbench.proposers.ladders.gemm_size import Size, size_of
from workbench.proposers.planner import Planner
from workbench.records import Ask, Problem, Proposal, Version
from workbench.session import Session

GEMM = Call(name="gemm", positional=("a", "b"))


@cache
def asked(name: str, precision: Any, arch: str = "sm_90a", instruction: str = "") -> Ask:
    problem: Problem = dataclasses.replace(problems.load(name), precision=precision)
    return Ask(
        problem=problem, facts=WorkerInspector().inspect(problem), arch=arch, device="H200", instruction=instruction
    )


def proposal(ask: Ask) -> Proposal:
    return next(item for item in Planner().propose(ask) if isinstance(item, Proposal))


def after(ask: Ask, *proposals: Proposal) -> Ask:
    versions = tuple(
        Version(number=n, parent=None, proposal=item, source_hash="", path="") for n, item in enumerate(proposals, 1)
    )
    return dataclasses.replace(ask, history=versions, baseline=versions[0])


def first(m: int, n: int, k: int, kind: str = "bf16") -> Choice:
    return list_choices(GEMM, kind, Size(m=m, n=n, k=k), "H200")[0]


@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_large_products_start_with_the_large_tile(size: int) -> None:
    choice = first(size, size, size)
    assert (choice.plan.tile, choice.plan.cluster, choice.plan.schedule, choice.plan.stages) == (
        (128, 256, 64),
        (2, 1),
        "cooperative",
        4,
    )
    assert first(size, size, size, "tf32").plan.tile == (128, 256, 32)


@pytest.mark.parametrize(
    "shape", [(16, 4096, 4096), (64, 4096, 4096), (256, 4096, 4096), (1024, 1024, 1024), (512, 512, 32768)]
)
def test_small_results_are_cut_so_that_the_device_is_busy(shape: tuple[int, int, int]) -> None:
    assert first(*shape).ctas >= 128


def test_long_k_is_summed_in_parts() -> None:
    assert first(512, 512, 32768).plan.split_k >= 4 and first(256, 256, 524288, "tf32").plan.split_k >= 8
    assert all(first(size, size, size).plan.split_k == 1 for size in (1024, 2048, 4096, 8192))


def test_a_large_result_of_little_k_gets_shared_memory_for_what_leaves() -> None:
    found = list_choices(GEMM, "tf32", Size(m=32768, n=32768, k=32), "H200", (("b", "row"),))
    assert [choice.plan.store_buffers for choice in found[:3]] == [8, 8, 0] and found[0].plan.band == 64
    assert all(choice.plan.shared_bytes <= 232_448 for choice in found)
    assert not any(
        choice.plan.store_buffers for choice in list_choices(GEMM, "tf32", Size(m=4096, n=4096, k=4096), "H200")
    )


def test_a_badly_filled_last_wave_is_cut_along_k() -> None:
    assert busy_share(132, 132) == 1.0 and busy_share(133, 132) == 133 / 264 and busy_share(66, 132) == 0.5
    found = list_choices(GEMM, "bf16", Size(m=4352, n=4096, k=4096), "H200")  # 17 x 32 tiles of 256 x 128: 4.1 waves
    cut = next(choice for choice in found if choice.plan.stream_k)
    whole = model_time(
        dataclasses.replace(cut.plan, stream_k=False), Size(m=4352, n=4096, k=4096), devices.find("H200")
    )[0]
    assert 0.8 < cut.seconds / whole < 0.9 and "82% of the device busy" in cut.reason and "cut along k" in cut.title
    assert not any(first(size, size, size).plan.stream_k for size in (2048, 4096, 8192))


def test_all_choices_are_legal_and_ranked() -> None:
    for shape in ((4096, 4096, 4096), (100, 3000, 77), (16, 16, 16)):
        found = list_choices(GEMM, "f16", Size(m=shape[0], n=shape[1], k=shape[2]), "H200")
        assert len(found) == 8 and [choice.seconds for choice in found[1:]] == sorted(
            choice.seconds for choice in found[1:]
        )
        assert len({choice.settings for choice in found}) == 8 and {choice.plan.schedule for choice in found} <= {
            "cooperative",
            "pingpong",
        }


def test_which_operands_are_copied_first() -> None:
    size = Size(m=64, n=100, k=50)
    assert copied_operands("f16", size, ()) == ("a", "b") and copied_operands("f16", size, (("a", "column"),)) == ("b",)
    assert (
        copied_operands("tf32", Size(m=64, n=64, k=64), ()) == ("b",)
        and copied_operands("tf32", Size(m=64, n=64, k=64), (("b", "column"),)) == ()
    )


def test_size_is_read_off_the_facts() -> None:
    assert size_of(asked("matmul", "fp16").facts) == Size(m=4096, n=4096, k=4096)
    facts = asked("matmul_bias_gelu", "bf16").facts
    assert size_of(facts) is not None and size_of(facts) == Size(
        m=facts.cases[-1].outputs[0].shape[0],
        n=facts.cases[-1].outputs[0].shape[1],
        k=facts.cases[-1].inputs[0].shape[-1],
    )


def test_only_where_wgmma_is() -> None:
    assert "schedule(cooperative)" in (proposal(asked("matmul", "fp16")).candidate.program or "")
    assert "schedule" not in (
        proposal(asked("matmul", "fp16", "sm_80")).candidate.program or ""
    ) and "schedule" not in (proposal(asked("matmul", "fp32", "sm_80")).candidate.program or "")
    whole = proposal(asked("matmul", "fp32"))
    assert (
        "mma(tf32x3)" in (whole.candidate.program or "")
        and "three products of TF32" in whole.title
        and "nearly as accurate as one of float32" in whole.reason
    )
    assert "mma" not in (
        proposal(dataclasses.replace(asked("matmul", "fp16"), constraints=("no tensor cores",))).candidate.program or ""
    )


def test_refinements_are_other_configurations_with_a_modelled_gain() -> None:
    ask = asked("matmul", "bf16")
    done = [proposal(ask)]
    for _ in range(5):
        done.append(proposal(after(ask, *done)))
    programs = [item.candidate.program or "" for item in done]
    assert len(set(programs)) == 6 and all("schedule" in program and not check(parse(program)) for program in programs)
    gains = [item.predicted_gain or 0.0 for item in done[1:]]
    assert gains == sorted(gains, reverse=True) and 0.5 < gains[-1] <= gains[0] < 1.1


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("tile 64x128", ".tile(64, 128, 64)"),
        ("clusters of 1x2", ".cluster(1, 2)"),
        ("ping-pong, tiles of 64x256", ".schedule(pingpong)"),
        ("3 stages", ".stages(3)"),
    ],
)
def test_words_that_name_settings(words: str, settings: str) -> None:
    assert settings in (
        proposal(dataclasses.replace(asked("matmul", "fp16"), instruction=words)).candidate.program or ""
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("matmul_bias_gelu", "bf16"),
        pytest.param("matmul_transposed", "tf32", marks=pytest.mark.slow),
        pytest.param("batched_matmul", "fp16", marks=pytest.mark.slow),
    ],
)
def test_verdict_of_the_first_version_on_the_emulator(tmp_path: Path, name: str, precision: Any) -> None:
    problem = dataclasses.replace(problems.load(name), precision=precision)
    with Session.create(problem, root=tmp_path, executor="emulator", arch="sm_90a") as session:
        version = session.generate()
        assert (
            version is not None
            and version.trials[-1].verdict.correct
            and "schedule(" in (version.proposal.candidate.program or "")
        )
        assert any(
            "gemm_kernel" in launch.kernel and launch.dynamic_shared_bytes > 100_000
            for launch in version.trials[-1].outcome.launches
        )


def test_the_reason_says_whose_idea_a_configuration_is() -> None:
    reason = first(1024, 1024, 1024).reason
    assert (
        ("nvidia-matmul-heuristics is not installed" in reason) != heuristics.is_installed()
        and "modelled" not in reason  # the one modelled time is that of the verdict
        and "on bf16" in reason
    )


@pytest.mark.skipif(not heuristics.is_installed(), reason="nvidia-matmul-heuristics is an extra")
@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
def test_nvidias_own_choice_is_among_the_leads(kind: str) -> None:
    found = heuristics.suggest(kind, (4096, 4096, 4096, 1), (("b", "column"),), "H200")
    assert found and all(0 < item.seconds < 1 for item in found)
    chosen = list_choices(GEMM, kind, Size(m=4096, n=4096, k=4096), "H200", (("b", "column"),), most=40)
    assert any(choice.suggested is not None and "which proposes it" in choice.reason for choice in chosen)
    assert (
        heuristics.suggest("e4m3", (64, 64, 64, 1), (), "H200")
        == heuristics.suggest(kind, (64, 64, 64, 1), (), "B200")
        == ()
    )


def test_few_rows_are_wgmmas_n_and_tf32_is_not_copied() -> None:
    choice = first(16, 4096, 4096)
    assert choice.plan.swap and choice.plan.tile[1] == 16 and choice.plan.in_cluster and choice.plan.pdl
    turned = list_choices(GEMM, "tf32", Size(m=4096, n=4096, k=4096), "H200")[0]
    assert turned.plan.a_in_registers and turned.plan.swap and turned.copied == () and "needs no copy" in turned.reason
    assert not list_choices(GEMM, "tf32", Size(m=4096, n=4096, k=4096), "H200", (("b", "column"),))[
        0
    ].plan.a_in_registers
    assert list_choices(GEMM, "tf32", Size(m=4096, n=4095, k=4096), "H200")[0].copied == ("b",)
