"""A slice of the fuzzer's cases at every run; the whole of them by `python tests/emulator/fuzz.py`."""

from __future__ import annotations

import pytest
from fuzz import case

FOUND = (313, 1943, 2433, 2924, 3200, 3639, 5721, 7794, 8829)  # seeds that once failed


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_a_changed_kernel_or_launch_ends_in_a_result_or_a_fault(start: int) -> None:
    kinds = {case(seed) for seed in range(start, start + 100)}
    assert {"ended", "unknown_instruction", "bad_launch"} <= kinds


@pytest.mark.parametrize("seed", FOUND)
def test_what_once_failed(seed: int) -> None:
    assert case(seed) != "ended"
