"""TMA descriptors that a kernel edits: tensormap.replace in shared and global memory, and the fences that make an edit
known to TMA.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.emulator import EmulationFault
from workbench.emulator.hook import emulated

sys.path.insert(0, str(Path(__file__).parent / "hopper"))


def words(count: int) -> torch.Tensor:
    """Zeroed int64, aligned to 128 bytes as a descriptor must be."""
    raw = torch.zeros(count + 16, dtype=torch.int64)
    skip = -raw.data_ptr() // 8 % 16
    return raw[skip : skip + count]


def copied(x: torch.Tensor, mode: str, mistake: str = "") -> torch.Tensor:
    """A tile of x by a descriptor that was made for another matrix, of 3 by 8; what sticks out of x is zero."""
    from cutlass.cute.runtime import from_dlpack
    from edited_map import COLUMNS, ROWS, EditedMap

    def view(t: torch.Tensor) -> Any:
        return from_dlpack(t, assumed_align=16).mark_layout_dynamic(leading_dim=1)

    y = torch.full((ROWS, COLUMNS), 7, dtype=x.dtype)
    with emulated(arch="sm_90a", device="H200"):
        EditedMap(mode, mistake)(
            view(torch.zeros((3, 8), dtype=x.dtype)), view(x), view(y), from_dlpack(words(16), assumed_align=128)
        )
    return y


@pytest.mark.parametrize("mode", ["shared", "global"])
@pytest.mark.parametrize(
    ("rows", "columns", "dtype"), [(16, 64, torch.float16), (5, 40, torch.float32), (40, 200, torch.bfloat16)]
)
def test_an_edited_descriptor_has_the_new_address_sizes_and_strides(
    mode: str, rows: int, columns: int, dtype: torch.dtype
) -> None:
    x = torch.arange(1, 1 + rows * columns).reshape(rows, columns).to(dtype)
    y = copied(x, mode)
    rows, columns = min(rows, 16), min(columns, 64)
    assert torch.equal(y[:rows, :columns], x[:rows, :columns])
    assert not y[rows:].any() and not y[:, columns:].any()


@pytest.mark.parametrize(
    ("mode", "mistake", "said"),
    [
        ("shared", "acquire", "that this CTA did not acquire"),
        ("global", "acquire", "that this CTA did not acquire"),
        ("global", "release", "was edited but not released"),
        ("shared", "again", "that changed since this CTA acquired it"),
    ],
)
def test_a_missing_fence_of_the_tensormap_proxy_is_an_error(mode: str, mistake: str, said: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        copied(torch.ones(16, 64, dtype=torch.float16), mode, mistake)
    failure = caught.value.failure
    assert (
        failure.kind == "tensormap_fence_missing"
        and said in failure.message
        and failure.line
        and "fence_tma_desc" in failure.hint
    )


def test_a_stride_that_tma_does_not_take_is_an_error() -> None:
    x = torch.ones(16, 72, dtype=torch.float16)[:, :68]
    copied(x, "shared")
    with pytest.raises(EmulationFault, match="stride must be a multiple of 16 bytes, not 136"):
        copied(x.contiguous(), "shared")
