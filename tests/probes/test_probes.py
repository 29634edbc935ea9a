"""Every probe on profiles that were really taken: kernels with its fault, and kernels without."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_kernels import PLANTED
from taken import (
    RESULTS,
    counted_profile,
    counted_rows,
    decided,
    diagnose_taken,
    measured_profiles,
    planted_profiles,
    take_row,
)

from workbench.landscapes import landscapes
from workbench.probes import KernelProbe, diagnose, load_probes
from workbench.probes.calibration import Calibrated, calibrated
from workbench.probes.moving import write_moved
from workbench.probes.two_stage import choose_class, classify_bound, select_classes
from workbench.records import Advice, Bound, KernelMetrics, Move, Profile, Work

Row = tuple[str, str]  # a landscape's problem, and a program
WIDE_VECTOR = "elementwise(gelu_tanh(x)) .arch(sm_90a) .vector(8)"
GEMM = "gemm(a, b) .arch(sm_90a)"
WITHOUT_TENSOR_CORES = f"{GEMM} .thread_tile(8, 8) .tile(64, 64, 32)"
CONV = "conv(x, w, padding=(2, 4), dilation=(2, 3)) .arch(sm_90a)"
NORM_40 = (
    "rowwise(add(mul(mul(sub(x, mean(x)), rsqrt(add(var(x), 1e-05))), spread(norm_weight)), spread(norm_bias)), "
    "axis=last(3)) .arch(sm_90a) .unroll(4)"
)
# rows whose advised change was measured to be at least 1.15 times as fast (for bank_conflicts a tile without them)
POSITIVE_ROWS: dict[str, tuple[Row, ...]] = {
    "access_width": (("gelu_tanh", "elementwise(gelu_tanh(x)) .arch(sm_90a) .threads(32)"),),
    "bank_conflicts": (
        ("matmul_transposed_bf16", f"{GEMM} .layout(a=column, b=column) .mma(bf16) .tile(128, 16, 64)"),
    ),
    "coalescing": (("matvec", "matvec(x, vector, keepdim=1) .arch(sm_90a) .threads_per_row(1) .unroll(2) .vector(4)"),),
    "dram_rate": (
        ("max_over_middle_49", "reduce(x, op=max, axis=1) .arch(sm_90a) .parts(512) .split(8) .unroll(2)"),
        ("sum_middle_axis", "reduce(x, op=sum, axis=middle) .arch(sm_90a) .parts(128) .split(4) .vector(4)"),
    ),
    "instruction_mix": (
        ("conv2d_dilated_80", f"{CONV} .threads(512)"),
        ("conv2d_depthwise_82", "conv(x, w, groups=channels) .arch(sm_90a) .threads(64)"),
    ),
    "memory_latency": (("square_matmul_01", f"{GEMM} .mma(tf32)"),),
    "pipeline_depth": (
        (
            "matmul_fp16_8192",
            f"{GEMM} .cluster(2, 1) .mma(f16) .schedule(cooperative) .stages(2) .tile(256, 128, 64)",
        ),
    ),
    "redundant_work": (
        ("layer_norm", "layernorm(x, eps=1e-05) .arch(sm_90a) .parts(32) .threads_per_row(1024) .unroll(2)"),
    ),
    "register_pressure": (("rms_norm", "rmsnorm(x, eps=1e-05) .arch(sm_90a) .kept() .unroll(8) .vector(2)"),),
    "register_spills": (
        ("conv3d_asymmetric_kernel_60", "conv(x, w) .arch(sm_90a) .filters(4) .rows(2) .threads(1024)"),
    ),
    "repeated_reads": (("square_matmul_01", GEMM),),
    "tensor_cores": (("conv2d_dilated_80", CONV), ("square_matmul_01", GEMM)),
    "tensor_feed": (
        ("matmul_fp16_8192", f"{GEMM} .cluster(2, 1) .mma(f16) .schedule(cooperative) .tile(128, 16, 128)"),
    ),
    "tma_clusters": (("matmul_bf16_8192", f"{GEMM} .mma(bf16) .schedule(pingpong) .tile(64, 16, 128)"),),
    "underfilled": (("layer_norm_40", NORM_40),),
    "wave_tail": (("matmul_tf32_2048", f"{GEMM} .mma(tf32) .tile(128, 16, 64)"),),
}
POSITIVE_ON_GPU = {
    "access_width": "relu: elementwise(relu(x)) .arch(sm_90a) .threads(128) .unroll(1)",
    "bank_conflicts": "tile_conflicts",
    "coalescing": "softmax: softmax(x) .arch(sm_90a) .threads_per_row(1) .unroll(8)",
    "divergence": "one_lane_works",
    "l2_locality": "rows_read_again",
    "memory_latency": "shared_memory_held",
    "occupancy": "shared_memory_held",
    "pipeline_depth": f"matmul_bf16_4096: {GEMM} .mma(bf16) .schedule(cooperative) .stages(2) .tile(128, 128, 64)",
    "register_pressure": f"matmul_fp32_4096: {WITHOUT_TENSOR_CORES}",
    "repeated_reads": "naive_product",
    "tensor_cores": f"matmul_bf16_4096: {GEMM} .mma(bf16) .stages(3) .tile(128, 128, 32)",
    "tensor_feed": f"matmul_bf16_4096: {GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .tile(128, 32, 128)",
    "tma_clusters": f"matmul_bf16_4096: {GEMM} .mma(bf16) .schedule(cooperative) .tile(128, 192, 64)",
    "underfilled": f"deep_bf16: {GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative)",
}
# fast kernels, on which no probe decides anything
FAST_ROWS: tuple[Row, ...] = (
    ("softmax", "softmax(x) .arch(sm_90a) .kept() .threads_per_row(1024) .unroll(8) .vector(4)"),
    ("matmul_bf16_4096", f"{GEMM} .cluster(2, 1) .mma(bf16) .raster(along_m, 16) .schedule(cooperative)"),
    ("relu", "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"),
)
FAST_ON_GPU = (
    "softmax: softmax(x) .arch(sm_90a) .kept() .threads_per_row(1024) .unroll(8) .vector(4)",
    "layer_norm: layernorm(x, eps=1e-05) .arch(sm_90a) .kept() .threads_per_row(512) .vector(4)",
    "relu: elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)",
    f"matmul_bf16_4096: {GEMM} .cluster(2, 1) .mma(bf16) .schedule(cooperative) .store(tma, 4)",
)
# slow for another reason than the probe's
OTHERS = {
    "access_width": ("through_dram", "one_load_in_flight"),
    "bank_conflicts": ("strided_stores", "barrier_in_loop"),
    "barrier_stalls": ("one_lane_works", "tile_conflicts"),
    "coalescing": ("relu, scalars", "tile_conflicts"),
    "divergence": ("strided_loads", "index_arithmetic"),
    "epilogue": ("two stages", "no cluster"),
    "instruction_mix": ("strided_loads", "one_load_in_flight"),
    "l2_locality": ("relu, scalars", "tile_conflicts"),
    "launch_overhead": ("rows_read_again", "no cluster", "row sums of bf16, scalars"),
    "memory_latency": ("mma.sync on Hopper", "tile_conflicts"),
    "occupancy": ("strided_loads", "branches_by_lane"),
    "pipeline_depth": ("no cluster", "strided_loads"),
    "redundant_work": ("strided_loads", "index_arithmetic"),
    "register_pressure": ("shared_memory_held", "relu, scalars"),
    "register_spills": ("layer norm, a row in 64 threads' registers", "two stages"),
    "repeated_reads": ("strided_stores", "two stages", "lone_lanes"),
    "tensor_cores": ("two stages", "no cluster"),
    "tensor_feed": ("mma.sync on Hopper", "a product without tensor cores"),
    "tma_clusters": ("two stages", "small tiles"),
    "underfilled": ("strided_loads", "rows of a wave and a little"),
    "wave_tail": ("few long rows", "strided_loads"),
    "dram_rate": ("strided_loads", "two stages"),
}
NAMES = [probe.name for probe in load_probes()]
METRICS = [
    field.name
    for field in dataclasses.fields(KernelMetrics)
    if field.name not in ("kernel", "grid", "block", "provenance", "duration_s", "modelled_s")
]


def test_there_are_probes_for_all_questions() -> None:
    assert len(NAMES) >= 15 and set(OTHERS) == set(NAMES)
    assert all(probe.question.endswith("?") and probe.classes for probe in load_probes())


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_advises_on_kernels_with_its_fault(name: str) -> None:
    rows = [counted_profile(*row) for row in POSITIVE_ROWS.get(name, ())]
    measured = [measured_profiles()[POSITIVE_ON_GPU[name]]] if name in POSITIVE_ON_GPU else []
    assert all(name in decided(taken) for taken in [*rows, *measured])
    planted = [planted_profiles()[item.name] for item in PLANTED if item.probe == name]
    assert all(name in {advice.probe for advice in diagnose_taken(taken).advice} for taken in planted)
    assert len([*rows, *measured, *planted]) >= 2


def test_a_vector_of_several_accesses_is_advised_to_be_smaller() -> None:
    """Of 32 bytes a thread moves half with each access, and its neighbour's lie beside the other half."""
    wide = counted_profile("gelu_tanh", WIDE_VECTOR)
    (advice,) = (item for item in diagnose_taken(wide).advice if item.probe == "coalescing")
    _, first = next(write_moved(WIDE_VECTOR, advice.moves))
    assert first == WIDE_VECTOR.replace(".vector(8)", ".vector(4)")


def test_a_row_is_not_cut_into_more_parts_to_be_read_once() -> None:
    """Each kernel of a row in parts reads it again."""
    problem, program = "softmax_bf16", "softmax(x) .arch(sm_90a) .parts(512) .unroll(2) .vector(2)"
    (advice,) = (
        item for item in diagnose_taken(counted_profile(problem, program)).advice if item.probe == "l2_locality"
    )
    moved = [text for _, text in write_moved(program, advice.moves) if ".parts(" in text]
    assert moved and not any(".parts(1024)" in text for text in moved)
    whole = program.replace(".parts(512) ", "")
    assert not any(".parts(" in text for _, text in write_moved(whole, advice.moves))


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_is_silent_on_kernels_that_are_slow_for_other_reasons(name: str) -> None:
    others = [planted_profiles()[other] for other in OTHERS[name]]
    assert len(others) >= 2 and all(name not in decided(taken) for taken in others)


def test_nothing_is_decided_on_fast_kernels() -> None:
    fast = [counted_profile(*row) for row in FAST_ROWS] + [measured_profiles()[name] for name in FAST_ON_GPU]
    assert [decided(taken) for taken in fast] == [set()] * len(fast)


@pytest.mark.slow
def test_high_advice_on_the_fastest_rows_needs_room_to_the_bound() -> None:
    places, seen = landscapes(), 0
    for row in counted_rows():
        best = places[row["problem"]].best
        assert best is not None and best.median_s is not None
        if row["seconds"] > 1.05 * best.median_s or (taken := take_row(row)) is None:
            continue
        seen += 1
        found = diagnose_taken(taken, probes=load_probes())
        high = [item.probe for item in found.advice if item.severity == "high"]
        assert not high or (found.room is not None and found.room >= 1.3), (row["problem"], row["program"], high)
        assert all(item.gain <= max(found.room or 1.0, 1.0) for item in found.advice)
    assert seen > 100


def test_the_order_does_not_depend_on_the_order_of_the_probes() -> None:
    probes = list(load_probes())
    for taken in [*planted_profiles().values()][:12]:
        first = diagnose_taken(taken, probes=probes)
        random.Random(1).shuffle(probes)
        assert diagnose_taken(taken, probes=probes) == first == diagnose_taken(taken, probes=probes)


def test_the_problems_own_limit_decides_where_the_kernels_differs() -> None:
    work = Work(case="full", flops=2 * 4096**3, least_bytes=3 * 4096 * 4096 * 2, dtype="bfloat16", tensor_cores=True)
    taken = dataclasses.replace(planted_profiles()["small tiles"], work=work)
    found = diagnose_taken(taken)
    assert (found.analytic, found.measured, found.bottleneck) == ("compute", "memory", "compute")
    assert "the problem is limited by compute" in found.note
    assert classify_bound(taken.bound) == "compute"
    assert choose_class("memory", "compute")[0] == "memory" and choose_class("mixed", "memory") == ("memory", "")


def test_a_kernel_that_waits_for_its_ctas_has_the_word_of_the_verdict() -> None:
    found = diagnose_taken(planted_profiles()["relu, CTAs of a warp"])
    assert found.measured == "CTA launch" and "take longer to start" in found.note
    assert found.advice[0].probe == "launch_overhead" and "CTAs of 32 threads" in found.advice[0].cause
    assert {move.setting for move in found.advice[0].moves} >= {"threads", "vector"}
    assert choose_class("compute", "CTA launch")[0] == "compute"


def test_what_lone_lanes_read_once_is_a_matter_of_coalescing() -> None:
    found = {item.probe: item for item in diagnose_taken(planted_profiles()["lone_lanes"]).advice}
    assert "8.0x the 32-byte sectors" in found["coalescing"].cause
    assert "repeated_reads" not in found and "access_width" not in found


@pytest.mark.parametrize("tile", ["two stages", "two stages of tf32"])
def test_a_pipeline_comes_before_a_cluster_where_copies_are_waited_for(tile: str) -> None:
    taken = planted_profiles()[tile]
    alone = tuple(dataclasses.replace(kernel, cluster=1) for kernel in taken.profile.kernels)
    lone = dataclasses.replace(taken, profile=dataclasses.replace(taken.profile, kernels=alone))
    probes = [item.probe for item in diagnose_taken(lone).advice]
    assert probes[0] == "pipeline_depth"


def test_probes_of_other_classes_are_not_asked() -> None:
    found = diagnose_taken(planted_profiles()["tile_conflicts"])
    assert found.bottleneck == "memory" and found.measured == "memory"
    skipped = dict(found.skipped)
    assert {"tensor_feed", "pipeline_depth", "epilogue"} <= set(skipped)
    classes = select_classes(found.bottleneck, found.measured)
    assert all(not classes & probe.classes for probe in load_probes() if probe.name in skipped)
    assert all(classes & probe.classes for probe in load_probes() if probe.name not in skipped)


@settings(max_examples=60)
@given(name=st.sampled_from(sorted(planted_profiles())), unknown=st.sets(st.sampled_from(METRICS)))
def test_an_unknown_metric_never_raises(name: str, unknown: set[str]) -> None:
    taken = planted_profiles()[name]
    kernels = tuple(_forget(kernel, unknown) for kernel in taken.profile.kernels)
    diagnose_taken(dataclasses.replace(taken, profile=dataclasses.replace(taken.profile, kernels=kernels)))


def test_what_is_unknown_does_not_fire() -> None:
    for taken in planted_profiles().values():
        kernels = tuple(_forget(kernel, set(METRICS)) for kernel in taken.profile.kernels[:1])
        bare = dataclasses.replace(taken.profile, kernels=kernels)
        found = diagnose(bare, taken.bound, "", probes=load_probes())
        assert found is not None and {item.probe for item in found.advice} <= {
            "underfilled",
            "launch_overhead",
        }  # by the grid


def _forget(kernel: KernelMetrics, names: set[str]) -> KernelMetrics:
    empty = {field.name: field.default for field in dataclasses.fields(KernelMetrics)}
    return dataclasses.replace(kernel, **{name: empty[name] for name in names})


def test_the_shipped_rates_are_those_of_the_last_calibration() -> None:
    table = json.loads((RESULTS / "probes.json").read_text())["probes"]
    assert {name: row["hits"] for name, row in table.items()} == {name: row.hits for name, row in calibrated().items()}
    assert set(table) >= set(NAMES)


def test_emulator_and_gpu_lead_to_the_same_decisions() -> None:
    from probes_on_gpu import compare, read_rows

    rows = [row for row in read_rows(RESULTS / "h200_probe_profiles.jsonl.gz") if row["measured"]]
    assert len(rows) >= 50 and compare(rows)["agreement"] >= 0.9


def test_a_probe_that_raises_is_named_and_hinders_no_other() -> None:
    class Broken(KernelProbe):
        name = "broken"
        question = "Does it raise?"

        def look(self, profile: Profile, bound: Bound | None, source: str, /) -> Advice | None:
            raise ValueError("no such counter")

    taken = planted_profiles()["strided_loads"]
    sound = diagnose_taken(taken, probes=load_probes())
    found = diagnose_taken(taken, probes=(*load_probes(), Broken()))
    assert found.advice == sound.advice and dict(found.skipped)["broken"] == "it failed: ValueError: no such counter"


def test_elementwise_flops_are_no_matter_of_tensor_cores() -> None:
    taken = planted_profiles()["a product without tensor cores"]
    assert "tensor_cores" in decided(taken)
    elementwise = dataclasses.replace(taken, work=dataclasses.replace(taken.work, tensor_cores=False))
    assert "tensor_cores" not in decided(elementwise)


def test_one_probe_speaks_of_copies_that_come_late() -> None:
    taken = planted_profiles()["two stages"]
    probes = {item.probe for item in diagnose_taken(taken, probes=load_probes()).advice}
    assert "pipeline_depth" in probes and "memory_latency" not in probes
    kernels = tuple(dataclasses.replace(item, async_copies=False) for item in taken.profile.kernels)
    plain = dataclasses.replace(taken, profile=dataclasses.replace(taken.profile, kernels=kernels))
    probes = {item.probe for item in diagnose_taken(plain, probes=load_probes()).advice}
    assert "memory_latency" in probes and "pipeline_depth" not in probes


def test_a_small_gain_elsewhere_does_not_change_a_probes_order() -> None:
    wanted = (Move(setting="unroll", direction="less"), Move(setting="threads", direction="less"))
    small = Calibrated(moves=(("threads less", 4, 1.05),))
    large = Calibrated(moves=(("threads less", 40, 1.5),))
    assert small.order_moves(wanted) == wanted
    assert large.order_moves(wanted) == wanted[::-1]
    assert Calibrated(moves=(("threads less", 40, 0.9),)).order_moves(wanted) == wanted[:1]
