"""Laws of random results: samples of one law are alike, and those of others are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from workbench.problems.reference.law import SAMPLES, SINGLE_SAMPLES, Comparison, compare_laws

CALLS = 48
WEIGHT = torch.randn(40, 40, generator=torch.Generator().manual_seed(3))
STAYS = torch.rand(41, 40, generator=torch.Generator().manual_seed(4)) > 0.5
Program = Callable[[torch.Tensor], torch.Tensor]


def compare(reference: Program, candidate: Program, calls: int = CALLS, seed: int = 0) -> Comparison:
    """Compare samples with one input of both programs."""
    torch.manual_seed(seed)
    x = torch.randn(41, 40)
    known = torch.stack([reference(x) for _ in range(SAMPLES if calls > 1 else SINGLE_SAMPLES)]).double()
    given = torch.stack([candidate(x) for _ in range(calls)])
    return compare_laws(given, known, 1e-6 + 2.0**-21 * known.mean(0).abs())


def drop(share: float, scale: float | None = None) -> Program:
    """Dropout written out; `scale` is 1/(1-p) unless given."""
    factor = 1 / (1 - share) if scale is None else scale
    return lambda x: torch.where(torch.rand_like(x) >= share, x * factor, 0.0)


def dropout(share: float) -> Program:
    return lambda x: F.dropout(x, share)


ALIKE: dict[str, tuple[Program, Program]] = {
    "dropout": (dropout(0.5), drop(0.5)),
    "rare": (dropout(0.02), drop(0.02)),
    "noise": (lambda x: x + torch.randn_like(x), lambda x: x - torch.randn_like(x)),
    "product": (lambda x: F.dropout(x, 0.2) @ WEIGHT, lambda x: drop(0.2)(x) @ WEIGHT),
    "before relu": (lambda x: F.dropout(x, 0.5).relu(), lambda x: drop(0.5)(x.relu())),
    "one draw": (lambda x: x * torch.rand(()), lambda x: x * torch.rand(1, 1)),
    "rows": (lambda x: F.dropout1d(x, 0.3), lambda x: x * (torch.rand(len(x), 1) >= 0.3) / 0.7),
    "multinomial": (lambda x: x.softmax(-1).multinomial(3), lambda x: x.softmax(-1).multinomial(3)),
    "exponential": (lambda x: torch.empty_like(x).exponential_(), lambda x: -(1 - torch.rand_like(x)).log()),
    "scalar": (
        lambda x: F.dropout(x, 0.5).square().mean((0, 1), True),
        lambda x: drop(0.5)(x).square().mean((0, 1), True),
    ),
}
UNLIKE: dict[str, tuple[Program, Program, str]] = {
    "mask stays": (dropout(0.5), lambda x: x * STAYS * 2, "the same random numbers"),
    "no scale": (dropout(0.1), drop(0.1, 1.0), "times torch's"),
    "wrong share": (dropout(0.5), drop(0.45), "of the values are 0"),
    "wrong share, right mean": (dropout(0.1), drop(0.15, 1 / 0.9), "of the values are 0"),
    "identity": (dropout(0.5), lambda x: x, "0 of the values are 0"),
    "zeros": (dropout(0.5), lambda x: x * 0, "1 of the values are 0"),
    "one mask for all rows": (dropout(0.5), lambda x: x * (torch.rand(1, 40) > 0.5) * 2, "depend on each other"),
    "one mask for two columns": (
        dropout(0.5),
        lambda x: x * (torch.rand(41, 20) > 0.5).repeat_interleave(2, 1) * 2,
        "depend on one another",
    ),
    "last row is kept": (dropout(0.1), lambda x: torch.cat([F.dropout(x[:-1], 0.1), x[-1:]]), ""),
    "last element is scaled": (dropout(0.5), lambda x: _scale_last(F.dropout(x, 0.5)), "1 elements have values"),
    "uniform, not normal": (
        lambda x: x + torch.randn_like(x),
        lambda x: x + (torch.rand_like(x) - 0.5) * 12**0.5,
        "distributed otherwise",
    ),
    "less noise": (
        lambda x: x + torch.randn_like(x),
        lambda x: x + 0.9 * torch.randn_like(x),
        "square deviation is 0.8",
    ),
    "after the product": (lambda x: F.dropout(x, 0.2) @ WEIGHT, lambda x: F.dropout(x @ WEIGHT, 0.2), ""),
    "greatest": (
        lambda x: x.softmax(-1).multinomial(1),
        lambda x: x.argmax(-1, keepdim=True),
        "the same random numbers",
    ),
    "fixed part is wrong": (
        lambda x: torch.cat([F.dropout(x, 0.5), x], 1),
        lambda x: torch.cat([F.dropout(x, 0.5), x * 1.01], 1),
        "no random number changes",
    ),
}


def _scale_last(x: torch.Tensor) -> torch.Tensor:
    x.view(-1)[-1] *= 1.1
    return x


@pytest.mark.parametrize("calls", [CALLS, 1])
@pytest.mark.parametrize("name", ALIKE)
def test_samples_of_one_law_are_alike(name: str, calls: int) -> None:
    for seed in range(2):
        found = compare(*ALIKE[name], calls=calls, seed=seed)
        assert found.distance <= 1, found.said


@pytest.mark.parametrize("name", UNLIKE)
def test_samples_of_another_law_are_not(name: str) -> None:
    reference, candidate, said = UNLIKE[name]
    found = compare(reference, candidate)
    assert found.distance > 1
    assert said in found.said


@pytest.mark.parametrize(
    "name", ["no scale", "wrong share", "identity", "zeros", "last row is kept", "fixed part is wrong"]
)
def test_a_single_call_shows_coarse_differences(name: str) -> None:
    reference, candidate, _ = UNLIKE[name]
    assert compare(reference, candidate, calls=1).distance > 1


def test_a_draw_that_may_be_chance_leaves_a_doubt() -> None:
    found = compare(lambda x: x * (torch.rand(()) < 0.9), lambda x: x)
    assert found.distance <= 1
    assert "may be chance" in found.doubt
