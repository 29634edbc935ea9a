"""Indices of equal values are alike, whichever of them torch returns; all others are compared as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workbench.problems.reference.choices import find_choices, take_equal_values
from workbench.session import Session

VALUES = torch.tensor([[3.0, 1.0, 3.0, 2.0, 3.0], [0.0, 5.0, 5.0, 1.0, 4.0]])


class Called(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def settle(function: Callable[[torch.Tensor], torch.Tensor], got: list[list[int]]) -> bool:
    """Whether `got` counts as the indices that a function of VALUES returns."""
    wanted, ours = function(VALUES), torch.tensor(got)
    model = Called(function)
    return torch.equal(take_equal_values(ours, wanted, lambda: find_choices(model, [VALUES])), ours)


@pytest.mark.parametrize("got", [[[0, 2], [1, 2]], [[4, 2], [2, 1]], [[2, 4], [1, 2]]])
def test_any_of_equal_values_may_be_chosen(got: list[list[int]]) -> None:
    assert settle(lambda x: x.topk(2).indices, got)


@pytest.mark.parametrize(
    "got", [[[0, 0], [1, 2]], [[0, 2], [1, 4]], [[0, 3], [1, 2]], [[0, 5], [1, 2]], [[-5, 2], [1, 2]]]
)
def test_an_index_twice_or_of_another_value_is_wrong(got: list[list[int]]) -> None:
    assert not settle(lambda x: x.topk(2).indices, got)


def test_indices_without_their_axis_and_integers_that_are_no_choice() -> None:
    assert settle(lambda x: x.argmax(1), [4, 2])
    assert not settle(lambda x: x.argmax(1) + 1, [4, 2])
    assert not settle(lambda x: (x > 2).long(), [[1, 1, 1, 0, 1], [0, 1, 1, 0, 1]])


@pytest.mark.slow
def test_top_k_of_a_router_in_half_precision(tmp_path: Path) -> None:
    path = tmp_path / "router.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, gate):\n"
        "        return torch.topk(gate, 2, dim=-1)\n\n\ndef get_inputs():\n"
        "    return [torch.randn(4096, 64).bfloat16()]\n"
    )
    with Session.create(str(path), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None and version.trials[-1].verdict.correct
