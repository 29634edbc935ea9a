"""The catalogue is complete, each doubt is raised by what it is about and by nothing else; bounds and devices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis import devices, hunks, integrity, speed_of_light
from workbench.records import Bound, Check, KernelBuild, Launch, LineCounts, Outcome, Timing, TorchWork, Work

WORK = Work(case="full", flops=10**9, least_bytes=48 * 10**8, dtype="float32", tensor_cores=False)
BOUND = speed_of_light.bound(WORK, devices.find("H200"))  # 1 ms
CHECK = Check(case="full", trial=0, timed=False, passed=True)
LAUNCH = Launch(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), total=LineCounts(line=0))
BUSY = replace(LAUNCH, total=LineCounts(line=0, global_read_bytes=100))


def measured(seconds: float, ratio: float = 1.0) -> Outcome:
    timing = Timing(
        case="full",
        device="H200",
        samples_s=(seconds,),
        median_s=seconds,
        low_s=seconds,
        high_s=seconds,
        wall_ratio=ratio,
    )
    return Outcome(
        executor="gpu",
        arch="sm_90a",
        device="H200",
        timing=timing,
        builds=(KernelBuild(kernel="k", arch="sm_90a"),),
        checks=(CHECK, replace(CHECK, timed=True)),
    )


def test_an_honest_result_raises_no_doubt() -> None:
    assert integrity.doubts(measured(1.1e-3), BOUND) == ()
    assert (
        integrity.doubts(
            Outcome(executor="emulator", arch="sm_80", device="H200", launches=(LAUNCH,), checks=(CHECK,)), BOUND
        )
        == ()
    )


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (measured(0.5e-3), "faster than the device can be"),
        (measured(2e-3, ratio=3.0), "work outside the timed stream"),
        (replace(measured(2e-3), checks=(CHECK,)), "no output of a timed call was checked"),
        (replace(measured(2e-3), builds=()), "no CuTe DSL kernel was compiled"),
        (Outcome(executor="emulator", arch="sm_80", device="H200", checks=(CHECK,)), "no CuTe DSL kernel was launched"),
        (replace(measured(2e-3), checks=(replace(CHECK, timed=True, trivial="zero"),)), "all zeros"),
    ],
)
def test_each_doubt_is_raised_alone(outcome: Outcome, said: str) -> None:
    found = integrity.doubts(outcome, BOUND)
    assert len(found) == 1 and said in found[0] and "\n" not in found[0]


@pytest.mark.parametrize(
    ("changes", "is_doubted"),
    [
        ({}, False),  # sigmoid of a product of positive numbers
        ({"values": ""}, True),
        ({"case": "long"}, True),
        ({"output": 1}, True),
        ({"elements": 0}, True),
    ],
)
def test_an_output_that_special_values_saturate_is_no_doubt_if_others_of_the_same_sizes_tell(
    changes: dict[str, object], is_doubted: bool
) -> None:
    drawn = replace(CHECK, case="odd", elements=1024)
    saturated = replace(drawn, trivial="constant", values="zeros and one sign")
    told = {name: value for name, value in changes.items() if name == "elements"}
    checks = (replace(drawn, **told), replace(saturated, **changes))  # type: ignore[arg-type]
    outcome = Outcome(executor="emulator", arch="sm_80", device="H200", launches=(LAUNCH,), checks=checks)
    found = integrity.doubts(outcome, BOUND)
    assert bool(found) is is_doubted and all("one value everywhere" in doubt for doubt in found)


@pytest.mark.parametrize(
    ("flops", "moved", "copied", "own_flops", "said", "refused"),
    [
        (4, 0, 900, 100, "", False),  # copies are free
        (6, 0, 0, 100, "did 6% of the problem's FLOPs", False),
        (50, 90, 0, 100, "moved 90% of the problem's bytes", False),  # an epilogue: many bytes, half of the FLOPs
        (51, 90, 0, 100, "did 51% of the problem's FLOPs", True),
        (0, 0, 60, 0, "moved 60% of the problem's bytes", True),  # a problem that computes nothing
    ],
)
def test_torchs_share_of_the_work(
    flops: int, moved: int, copied: int, own_flops: int, said: str, refused: bool
) -> None:
    own = [replace(WORK, case=case, flops=own_flops, least_bytes=100) for case in ("shrunk", "odd")]
    item = TorchWork(case="shrunk", flops=flops, bytes=moved, copied=copied, operations=("mm",))
    outcome = Outcome(executor="emulator", arch="sm_80", device="H200", launches=(BUSY,), torch_work=(item,))
    outcome = replace(outcome, checks=(replace(CHECK, case="shrunk"), replace(CHECK, case="odd")))
    found = integrity.doubts(outcome, None, None, own)
    assert len(found) == bool(said) and said in "".join(found)
    assert integrity.torch_refusal(outcome, own) == (found[0] if refused else "")
    elsewhere = replace(outcome, torch_work=(replace(item, case="odd"),))  # sizes that the kernels do not take
    assert not integrity.torch_refusal(elsewhere, own)
    assert len(integrity.doubts(elsewhere, None, None, own)) == bool(said)


@pytest.mark.parametrize(("unseen", "said"), [(0.0, ""), (0.25, ""), (0.3, "30%"), (3.0, "100%")])
def test_results_that_were_written_out_of_sight(unseen: float, said: str) -> None:
    items = [TorchWork(case=case, flops=0, bytes=0, copied=0, unseen=unseen / n) for n, case in enumerate("ab", 1)]
    outcome = Outcome(executor="emulator", arch="sm_80", device="H200", launches=(BUSY,), torch_work=tuple(items))
    found = integrity.doubts(replace(outcome, checks=(CHECK,)), None, None)
    assert len(found) == bool(said) and said in "".join(found)
    assert [integrity.find_code(doubt) for doubt in found] == ["unseen_writer"] * bool(said)
    assert not said or "(case a)" in found[0]


@pytest.mark.parametrize(
    ("flops", "moved", "parts", "operation", "said"),
    [
        (100, 50, (("mul", 100),), "aten.mul.Tensor", ""),
        (100, 49, (("mul", 100),), "aten.mul.Tensor", "moved 49.0% of the problem's bytes"),
        (100, 49, (("mul", 100),), "aten.index.Tensor", ""),  # which bytes an index reaches is not known
        (0, 50, (("relu", 100),), "aten.relu.default", ""),  # comparing and selecting are no FLOPs
        (4, 100, (("mm", 100),), "aten.mm.default", "did 4.0% of the problem's FLOPs"),
        (5, 100, (("mm", 100), ("relu", 900)), "aten.mm.default", ""),
    ],
)
def test_kernels_that_did_too_little_are_a_doubt_whoever_did_the_rest(
    flops: int, moved: int, parts: tuple[tuple[str, int], ...], operation: str, said: str
) -> None:
    own = [replace(WORK, case="shrunk", flops=100, least_bytes=100, parts=parts)]
    total = LineCounts(line=0, flops=flops, global_read_bytes=moved - 10, global_write_bytes=10)
    launch, check = replace(LAUNCH, total=total), replace(CHECK, case="shrunk")
    outcome = Outcome(executor="emulator", arch="sm_80", device="H200", launches=(launch,), checks=(check,))
    found = integrity.doubts(outcome, None, None, own, [operation])
    assert len(found) == bool(said) and said in "".join(found)
    assert not said or integrity.find_code(found[0]) == "kernel_share"


def test_a_time_that_cannot_be_true_is_refused_with_the_reason() -> None:
    assert (
        integrity.refusal_reason(measured(0.91e-3), BOUND) == ""
        and integrity.refusal_reason(measured(2e-3, ratio=3.0), BOUND) == ""
    )
    said = integrity.refusal_reason(measured(0.89e-3), BOUND)
    assert (
        "890.0 us is under 0.9 of the floor of 1000.0 us" in said
        and "by the data sheet of H200" in said
        and said in integrity.doubts(measured(0.89e-3), BOUND)
    )
    assert integrity.refusal_reason(measured(0.1e-3), None) == ""


def test_three_tf32_products_in_place_of_one_in_float32_are_no_doubt() -> None:
    work = Work(case="full", flops=2 * 8192**3, least_bytes=12 * 8192**2, dtype="float32", tensor_cores=True)
    bound = speed_of_light.bound(work, devices.find("H200"))
    assert bound.floor_s is not None and bound.floor_s < 0.5 * bound.bound_s
    assert integrity.doubts(measured(0.8 * bound.bound_s), bound) == ()
    assert integrity.doubts(measured(0.8 * bound.floor_s), bound) != ()


@given(
    st.integers(1, 10**15),
    st.integers(1, 10**13),
    st.sampled_from(["float32", "tfloat32", "float16", "bfloat16"]),
    st.booleans(),
    st.sampled_from(devices.names()),
)
def test_floor_bound_and_attainable_are_in_order(flops: int, least: int, dtype: str, tensor: bool, name: str) -> None:
    device = devices.find(name)
    made: Bound = speed_of_light.bound(
        Work(case="full", flops=flops, least_bytes=least, dtype=dtype, tensor_cores=tensor), device
    )
    assert made.floor_s is not None and 0 < made.floor_s <= made.bound_s == max(made.compute_s, made.memory_s)
    assert made.attainable_s is None or made.attainable_s >= made.bound_s
    assert (made.attainable_s is None) == (device.copy_bandwidth is None)
    assert made.limited_by == (
        "compute" if made.intensity > made.ridge else "memory"
    ) or made.compute_s == pytest.approx(made.memory_s)


def test_devices_are_found_as_drivers_spell_them() -> None:
    spelt = {
        "NVIDIA H200": "H200",
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA GeForce RTX 4090": "RTX4090",
        "b200": "B200",
    }
    assert {spelling: devices.find(spelling).name for spelling in spelt} == spelt
    for name in devices.names():
        device = devices.find(name)
        rates = [device.peak(dtype, tensor_cores=True) for dtype in ("tfloat32", "float16", "float8_e4m3fn")]
        assert rates == sorted(rates) and device.shared_bytes_per_block <= device.shared_bytes_per_sm


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=14), st.lists(st.sampled_from(["a", "b", "c"]), max_size=14))
def test_hunks_are_numbered_from_one_in_order_and_an_equal_line_lies_between(old: list[str], new: list[str]) -> None:
    found = hunks.hunks("\n".join(old), "\n".join(new))
    assert [hunk.index for hunk in found] == list(range(1, len(found) + 1))
    for before, after in itertools.pairwise(found):
        assert after.old_start > before.old_start + len(before.old) and after.new_start > before.new_start + len(
            before.new
        )
