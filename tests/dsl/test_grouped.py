"""Grouped products on the emulator: groups of any size, also empty ones; rejections.

Operands are small integers, so results are exact.
"""

from __future__ import annotations

import pytest
import torch
from running import load
from test_epilogues import launched

from workbench.emulator import emulated
from workbench.language import check, parse

GROUPED = "ggemm(a, b, offsets) .arch(sm_90a) "


def integers(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("how", "ends", "n", "turned", "dtype"),
    [
        (".mma(bf16) .tile(64, 64, 64) .schedule(cooperative)", (40, 40, 130, 200), 136, True, torch.bfloat16),
        (
            ".mma(f16) .tile(128, 64, 64) .schedule(cooperative) .cluster(2, 1) .launch(early) >> scale(0.5) >> relu()",
            (0, 150, 300),
            133,
            False,
            torch.float16,
        ),
        (
            ".mma(tf32) .tile(128, 64, 32) .schedule(cooperative) .cluster(1, 2) .store(direct) >> cast(bf16)",
            (130, 131),
            136,
            True,
            torch.float32,
        ),
    ],
)
@pytest.mark.parametrize("resident", [1, 5])
def test_groups_are_multiplied_by_their_own_matrices(
    how: str, ends: tuple[int, ...], n: int, turned: bool, dtype: torch.dtype, resident: int
) -> None:
    a, b = integers(ends[-1], 72, seed=1, dtype=dtype), integers(len(ends), n, 72, seed=2, dtype=dtype).transpose(1, 2)
    b = b if turned else b.contiguous()
    got, emulation = launched(
        GROUPED + how, {"a": a, "b": b, "offsets": torch.tensor(ends, dtype=torch.int32)}, resident
    )
    want = torch.cat(
        [
            a[start:end].double() @ b[group].double()
            for group, (start, end) in enumerate(zip((0, *ends), ends, strict=False))
        ]
    )
    want = (want * 0.5).relu() if "relu" in how else want
    assert torch.equal(got, want.to(got.dtype)) and got.dtype == (torch.bfloat16 if "cast" in how else dtype)
    assert not [finding for finding in emulation.findings if finding.severity == "error"]


@pytest.mark.parametrize("ends", [(40, 30, 60), (-2, 20, 60), (20, 40, 61)])
def test_offsets_out_of_order_are_refused_where_they_can_be_read(ends: tuple[int, ...]) -> None:
    tensors = {"a": torch.ones(60, 64).half(), "b": torch.ones(3, 64, 72).half(), "offsets": torch.tensor(ends)}
    with pytest.raises(
        ValueError,
        match=rf"^offsets is \[{ends[0]}, .*\]; this kernel wants non-decreasing group ends from 0 to 60$",
    ):
        launched(GROUPED + ".mma(f16) .tile(64, 64, 64) .schedule(cooperative)", tensors, 2)


@pytest.mark.few(1)
@pytest.mark.parametrize("ends", [(-5, 200, 20), (-(1 << 31), (1 << 31) - 1, -1), (1 << 30, 1 << 30, 1 << 30)])
@pytest.mark.parametrize("store", ["", " .store(direct)"])
def test_offsets_that_are_not_looked_at_reach_nothing_outside(ends: tuple[int, ...], store: str) -> None:
    module, path = load(
        GROUPED + ".mma(f16) .tile(64, 64, 64) .schedule(cooperative)" + store, ("a", "b", "offsets"), (), 2
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        emulated(arch="sm_90a", device="H200", source_file=str(path)) as emulation,
    ):
        patch.setattr(module, "check_group_ends", lambda *_: None)  # as with offsets in a GPU's memory
        got = module.ModelNew()(torch.ones(60, 64).half(), torch.ones(3, 64, 72).half(), torch.tensor(ends))
    assert got.shape == (60, 72) and not [finding for finding in emulation.findings if finding.severity == "error"]
    assert (got == 64).all()  # these offsets leave no row out


@pytest.mark.parametrize(
    ("text", "field", "legal"),
    [
        ("ggemm(a, b, offsets)", "arch", "sm_90a"),
        (GROUPED + ".mma(f16) .tile(64, 64, 64) .schedule(pingpong)", "schedule", "cooperative"),
        (GROUPED + ".mma(f16) .schedule(cooperative) .splitk(2)", "splitk", ""),
        (GROUPED + ".mma(f16) .schedule(cooperative) >> bias()", "epilogue", ""),
        (GROUPED + ".mma(f16) .schedule(cooperative) >> mul(t)", "epilogue", "leave it out"),
    ],
)
def test_rejections_name_field_and_legal_values(text: str, field: str, legal: str) -> None:
    found = check(parse(text))
    assert field in [item.field for item in found] and any(legal in item.legal for item in found)
