"""An access whose index a helper computes is named, and not the helper."""

from __future__ import annotations

import pytest

from workbench.probes.access_lines import find_access

SOURCE = """\
def stretch(at):
    return at * STRIDE


def locate(block, at):
    return stretch(block + at)


def mean(total, count):
    return total / count


@cute.kernel
def kernel(x, y):
    at = cute.arch.thread_idx()[0]
    for step in range(4):
        i = stretch(at)
        wide = cutlass.Float32(2.0)
        total = x[i, None].load()
        y[locate(step, at)] = total * wide
    end = mean(total, 4)
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("return at * STRIDE", "total = x[i, None]"),  # by the name that is given its result
        ("return stretch(block", "y[locate(step, at)]"),  # in the index itself
        ("total = x[i, None]", "total = x[i, None]"),
        ("wide = cutlass", "wide = cutlass"),  # of the kernel, which nothing calls
    ],
)
def test_the_line_of_an_index_is_that_of_its_access(text: str, wanted: str) -> None:
    lines = SOURCE.splitlines()
    at, to = (next(n for n, line in enumerate(lines, 1) if one in line) for one in (text, wanted))
    assert find_access(SOURCE, at) == to


def test_a_helper_whose_result_is_no_index_stays() -> None:
    lines = SOURCE.splitlines()
    at = next(n for n, line in enumerate(lines, 1) if "return total / count" in line)
    assert lines[(find_access(SOURCE, at) or 0) - 1].strip() == "return total / count"


def test_what_is_no_python_or_no_line_stays() -> None:
    assert find_access("def broken(:\n    return 1\n", 2) == 2
    assert find_access(SOURCE, None) is None and find_access(SOURCE, 99) == 99
