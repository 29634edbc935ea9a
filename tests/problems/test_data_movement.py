"""Calls that only move data have no FLOPs, so a kernel that computes nothing is no doubt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from workbench.problems.counting import FlopCount
from workbench.session import Session

MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "constant pad": lambda x: F.pad(x, (1, 2, 1, 0)),
    "reflect": lambda x: F.pad(x, (1, 2, 1, 0), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 1, 0), mode="replicate"),
    "circular": lambda x: F.pad(x, (1, 2, 1, 0), mode="circular"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "nearest-exact": lambda x: F.interpolate(x, size=(5, 7), mode="nearest-exact"),
    "roll and flip": lambda x: x.roll(3, -1).flip(-2),
    "pixel shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel shuffle": lambda x: F.channel_shuffle(x, 2),
    "unfold": lambda x: F.unfold(x, 3),
    "take": lambda x: x.take(torch.arange(5)),
    "repeat": lambda x: x.repeat_interleave(3, dim=0),
    "sorted": lambda x: x.sort(-1).values,
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_data_counts_no_flops(name: str) -> None:
    with FlopCount() as count:
        MOVES[name](torch.randn(2, 4, 8, 8))
    assert not count.flops


@pytest.mark.parametrize(
    "call", ["F.pad(x, (3, 3, 3, 3), mode='reflect')", "F.interpolate(x, scale_factor=2, mode='nearest')"]
)
def test_a_kernel_that_moves_data_is_no_doubt(call: str, tmp_path: Path) -> None:
    file = tmp_path / "moves.py"
    file.write_text(
        f"""
import torch, torch.nn as nn, torch.nn.functional as F
N, C, H, W = 4, 8, 32, 32

class Model(nn.Module):
    def forward(self, x):
        return {call}

def get_inputs():
    return [torch.randn(N, C, H, W)]

def get_init_inputs():
    return []
"""
    )
    with Session.create(str(file), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        verdict = session.judge(version.number).trials[-1].verdict
    assert verdict.correct and not verdict.doubts
