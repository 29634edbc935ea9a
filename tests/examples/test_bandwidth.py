"""The read-only kernels read what they say, on the emulator, to the last element."""

from __future__ import annotations

import pytest
import torch

import workbench
from workbench.examples import bandwidth


@pytest.mark.parametrize(("chunks", "passes", "ctas"), [(3, 2, None), (2, 3, 5)])
def test_l2_reads_chunks_in_turn(chunks: int, passes: int, ctas: int | None) -> None:
    with workbench.emulated(device="H200") as emulation:
        x = torch.randint(-2, 3, (chunks * bandwidth.L2.chunk,), device="cuda").float()
        sums = bandwidth.read_l2(x, passes, ctas).view(-1, bandwidth.L2.threads).sum(1)
        whole = x.view(chunks, -1).sum(1)
        count = ctas or chunks
        expected = torch.stack(
            [
                sum((whole[(block + turn + 1) % chunks] for turn in range(passes)), torch.zeros((), device="cuda"))
                for block in range(count)
            ]
        )
        assert torch.equal(sums, expected)
        (launch,) = emulation.launches
        assert (
            launch.total.global_read_bytes == bandwidth.L2.count_bytes(count, passes)
            and launch.total.global_sectors - launch.total.global_write_bytes // 32
            == launch.total.global_read_bytes // 32
        )
        assert not [finding for finding in emulation.findings if finding.severity == "error"]


def test_shared_reads_without_conflicts() -> None:
    with workbench.emulated(device="H200") as emulation:
        rows = torch.randint(-2, 3, (bandwidth.SHARED.elements,), device="cuda").float()
        passes, groups = 3, bandwidth.SHARED.groups
        sums = bandwidth.read_shared(rows, passes, 2)
        whole = rows.view(groups, -1).sum(1)
        turns = [(warp + turn) % groups for turn in range(passes) for warp in range(bandwidth.SHARED.threads // 32)]
        assert sums.sum() == 2 * whole[turns].sum()
        (launch,) = emulation.launches
        stored = 2 * bandwidth.SHARED.rows * 4  # wavefronts: each CTA fills its rows once
        assert (
            launch.total.shared_wavefronts
            == launch.total.shared_ideal_wavefronts
            == bandwidth.SHARED.count_bytes(2, passes) // 128 + stored
        )


def test_sizes_that_do_not_fit_are_refused() -> None:
    with workbench.emulated(device="H200"), pytest.raises(ValueError, match="a multiple of"):
        bandwidth.read_l2(torch.zeros(100, device="cuda"), 1)
    with workbench.emulated(device="H200"), pytest.raises(ValueError, match="takes 8192 float32"):
        bandwidth.read_shared(torch.zeros(100, device="cuda"), 1)
