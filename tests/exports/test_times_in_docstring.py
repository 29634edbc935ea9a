"""Measured times stand in the docstring of an exported file, which stays a Python file of the same meaning."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from workbench.codegen import exports
from workbench.session import Session

TIMES = "Measured on H200, 2026-11-27: this version: kernels 12.0 us, a call 31.5 us; torch eager: kernels 20.0 us."


@pytest.mark.parametrize("before", ["", "\n\n", "# a line\n\n# another\n"])
def test_times_are_the_last_paragraph_of_the_docstring(before: str) -> None:
    written = exports.add_times(f'{before}"""A kernel.\n\nMore.\n"""\n\nx = 1\n', TIMES)
    assert (ast.get_docstring(ast.parse(written)) or "").replace("\n", " ").endswith(TIMES)
    assert written.startswith(f'{before}"""A kernel.\n\nMore.\n\n') and written.endswith("\n\nx = 1\n")


@pytest.mark.parametrize("source", ["x = 1\n", "\n" * 60 + "x = 1\n", 'x = """no docstring"""\n'])
def test_a_file_without_a_docstring_stays_as_it_is(source: str) -> None:
    assert exports.add_times(source, TIMES) == source
    assert exports.add_times('"""A kernel."""\n', "") == '"""A kernel."""\n'


def test_an_export_of_recorded_times_names_gpu_and_date(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, name="s", executor="replay") as session:
        version = session.generate()
        assert version is not None and version.trials[-1].outcome.timing is not None
        said = ast.get_docstring(ast.parse(session.export(version.number))) or ""
    assert "Measured on NVIDIA H200, 20" in said and "this version: kernels" in said
