"""The comparison of kinds of feedback: its test, its rule for raw counters, its committed numbers."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from taken import RESULTS, counted_profile

from workbench.probes.signals import read_signals

# isort: split
from feedback_arms import ARMS, RULES, exceeded, signed_rank


@pytest.mark.parametrize("differences", [(1.0, 2.0, 3.0, 4.0, -5.0), (0.3, -0.1, 0.7, 0.2, -0.9, 0.4, 1.5, -0.05)])
def test_the_exact_probability_counts_all_signs(differences: tuple[float, ...]) -> None:
    smaller, chance = signed_rank(differences)
    sizes = range(1, len(differences) + 1)
    whole = sum(sizes)
    lower = [
        min(total := sum(size for size, sign in zip(sizes, signs, strict=True) if sign), whole - total)
        for signs in itertools.product((0, 1), repeat=len(differences))
    ]
    assert chance == pytest.approx(sum(total <= smaller for total in lower) / len(lower))


def test_known_values_and_edges() -> None:
    assert signed_rank([1.0, 2.0, 3.0, 4.0, 5.0]) == (0.0, 0.0625)
    assert signed_rank([]) == signed_rank([0.0, 0.0]) == (0.0, 1.0)
    smaller, chance = signed_rank([float(at) for at in range(1, 31)])  # by the normal approximation
    assert smaller == 0.0 and chance == pytest.approx(math.erfc(232.5 / math.sqrt(2 * 30 * 31 * 61 / 24)))
    assert signed_rank([1.0, 1.0, -1.0, -1.0])[1] == pytest.approx(1.0)


def test_a_reader_of_raw_counters_takes_what_is_exceeded_most() -> None:
    taken = counted_profile("rms_norm", "rmsnorm(x, eps=1e-05) .arch(sm_90a) .kept() .unroll(8) .vector(2)")
    found = exceeded(read_signals(taken.profile)[0])
    assert [amount for amount, _ in found] == sorted((amount for amount, _ in found), reverse=True)
    assert {"OccupancyLimiter", "HighRegisterUsage"} <= {name for _, name in found} <= set(RULES)


def test_directives_lead_to_faster_programs_than_raw_counters() -> None:
    found = json.loads((RESULTS / "feedback_arms.json").read_text())
    assert found["landscapes"] >= 21
    for how in ("as made", "kept"):
        against = found[how]["directives against"]
        assert set(against) == set(ARMS) - {"directives"}
        assert all(row["ratio"] > 1 and row["p"] < 0.05 for row in against.values())
