"""The list of PTX forms that CuTe DSL emits (conformance/forms.csv): up to date, complete, and supported for Ampere."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "conformance"
sys.path.insert(0, str(FOLDER))

import collect  # noqa: E402
import probes  # noqa: E402
from cutlass.cute import arch  # noqa: E402
from cutlass.cute.nvgpu import cpasync, warp, warpgroup  # noqa: E402

ROWS = collect.read()
REFRESH = "run: python tests/emulator/conformance/collect.py --refresh"
BLACKWELL = (
    "MmaMXF4Op",
    "MmaMXF4NVF4Op",
    "MmaMXF8Op",
    "MmaMXF8F6F4Op",
    "StMatrix16x8x8bOp",
    "LdMatrix16x8x8bOp",
    "LdMatrix16x16x8bOp",
)
NOT_COLLECTED = (
    "CopyDsmemStoreOp",
    "CopyBulkS2GByteMaskOp",
    "TmaCopyOp",
)  # a base class, and two operations for sm_100


def test_the_supported_column_is_what_the_emulator_says() -> None:
    wrong = [
        f"{row['arch']} {row['example']}"
        for row in ROWS
        if collect.decodes(row["example"]) != (row["supported"] == "yes")
    ]
    assert not wrong, f"{REFRESH}: {wrong[:5]}"


@pytest.mark.parametrize("architecture", collect.ARCHES)
def test_an_unsupported_form_fails_by_name(architecture: str) -> None:
    from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
    from workbench.emulator.execution.machine import Machine

    for row in [row for row in ROWS if row["arch"] == architecture and row["supported"] == "no"]:
        text = (
            f".version 8.8\n.target {architecture}\n.address_size 64\n.visible .entry k()\n{{\n"
            f"{row['example']};\nret;\n}}\n"
        )
        with pytest.raises(EmulationFault, match="does not know") as caught:
            Machine(text, DeviceLimits()).run(GridRequest(entry="k", grid=(1, 1, 1), block=(128, 1, 1)), GlobalMemory())
        assert (
            caught.value.failure.kind == "unknown_instruction"
            and collect.head(row["example"]) in caught.value.failure.message
        )


def test_over_95_percent_of_the_ampere_forms_are_supported() -> None:
    mine = [row for row in ROWS if row["arch"] == "sm_80"]
    assert len(mine) > 600 and sum(row["supported"] == "yes" for row in mine) > 0.95 * len(mine)


def test_every_public_wrapper_is_probed_or_left_out_for_a_reason() -> None:
    assert set(arch.__all__) <= set(probes.ARCH) | set(probes.LEFT_OUT)
    names = " ".join(name for name, _ in probes.all_probes()) + " ".join(name for name, _, _ in probes.tma_sources())
    for module in (warp, cpasync, warpgroup):
        operations = [
            name for name in module.__all__ if name.endswith("Op") and name not in (*BLACKWELL, *NOT_COLLECTED)
        ]
        assert [name for name in operations if name not in names and name != "CopyG2SOp"] == [] and operations
    assert "cp.async 128" in names  # CopyG2SOp


def test_what_an_architecture_refuses_is_written_down() -> None:
    with (FOLDER / "probes.csv").open(newline="") as file:
        refused = list(csv.DictReader(file))
    assert refused and all(row["refused"] for row in refused)
    sources = {name for name, _ in probes.all_probes()} | {name for name, _, _ in probes.tma_sources()}
    assert {row["source"] for row in refused} <= sources


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_ampere_probe_that_compiles_also_runs() -> None:
    """Each probe executed by one warpgroup: the end of the launch, or a fault that names what is wrong, never a crash
    of the emulator.
    """
    import cutlass.cute as cute
    import torch
    from cutlass.cute.runtime import from_dlpack

    import workbench
    from workbench.emulator import EmulationFault

    known = {
        "arch.barrier register": "bad_barrier",
        "math.pow f64": "unknown_instruction",
        "math.pow f64 fastmath": "unknown_instruction",
    }  # a barrier numbered 23; a function in the PTX
    ran, faults = 0, {}
    with workbench.emulated(
        device="A100", counters=False
    ):  # and no races looked for: all threads of a probe store to one place
        kinds = [
            getattr(torch, name)
            for name in (
                "int8",
                "uint8",
                "int16",
                "uint16",
                "int32",
                "uint32",
                "int64",
                "uint64",
                "float16",
                "bfloat16",
                "float32",
                "float64",
            )
        ]
        tensors = [from_dlpack((torch.arange(4096) % 23 + 1).to(kind).cuda(), assumed_align=16) for kind in kinds]
        for name, probe in probes.all_probes():
            if name.startswith(("warpgroup.", "arch.mbarrier")):
                continue
            try:
                compiled = cute.compile(probes.launch, (probe,), tensors)
            except Exception:
                continue  # not for this architecture: probes.csv
            try:
                compiled(tensors)
                ran += 1
            except EmulationFault as fault:
                faults[name] = fault.failure.kind
    assert faults == known and ran > 1600
