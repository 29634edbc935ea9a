"""The package keeps the limits of its shape (figures.py): sizes, complexity, folders, import circles, Any, lines."""

from __future__ import annotations

import ast
import textwrap

import pytest
from figures import LIMITS, ROOT, Figures, complexity, count_any, import_circles, kernel_text_lines, long_lines, measure


@pytest.fixture(scope="module")
def found() -> Figures:
    """The figures of the whole package."""
    return measure()


@pytest.mark.parametrize("name", LIMITS)
def test_a_figure_is_within_its_limit(name: str, found: Figures) -> None:
    assert found.values[name] <= LIMITS[name], "\n".join(found.over.get(name, ()))


def test_there_is_no_import_circle(found: Figures) -> None:
    assert found.over["import circles"] == []


def test_lines_of_tests_are_within_the_limit() -> None:
    over = long_lines(ROOT / "tests")
    assert not over, "\n".join(over)


def test_complexity_counts_branches_and_further_operands() -> None:
    source = """
    def walk(items):
        for item in items:
            if item and item.left or item.right:
                yield [part for part in item.parts if part]
        def inner():
            return 1 if items else 2
    """
    function = ast.parse(textwrap.dedent(source)).body[0]
    assert complexity(function) == 1 + 1 + 1 + 2 + 1  # for, if, and, or, comprehension; inner has its own


def test_circles_are_found_over_several_modules() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert import_circles(graph) == [["a", "b", "c"]]


def test_any_is_counted_where_it_is_used() -> None:
    assert count_any("from typing import Any\n\nx: Any = 1\n\n\ndef f(y: dict[str, Any]) -> None: ...\n") == 2


def test_kernel_text_is_counted_in_strings_but_not_in_docstrings() -> None:
    text = "def kernel(x):\\n    y = cute.size(x)\\n    return cutlass.Int32(y)\\n"
    assert kernel_text_lines(ast.parse(f'TEXT = "{text}"')) == 3
    assert kernel_text_lines(ast.parse(f'"{text}"')) == 0
