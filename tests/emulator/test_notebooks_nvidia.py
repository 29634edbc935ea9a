"""NVIDIA's CuTe DSL notebooks, unmodified, from the nvidia-cutlass wheel (extra `search`), cell by cell under
emulation.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import workbench

DROPPED = {
    "print": ["module 'cutlass.cute' has no attribute 'make_fragment'"],
    "tensorssa": ["module 'cutlass.cute' has no attribute 'make_fragment'"],
}  # now cute.make_rmem_tensor


def folder() -> Path | None:
    found = importlib.util.find_spec("cutlass_library")
    path = Path(found.origin).parent / "source/examples/python/CuTeDSL/notebooks" if found and found.origin else None
    return path if path and path.is_dir() else None


NOTEBOOKS = folder()
pytestmark = pytest.mark.skipif(
    NOTEBOOKS is None, reason="the nvidia-cutlass wheel is not installed: pip install --no-deps 'nvidia-cutlass>=4.2'"
)


def errors_of(name: str) -> tuple[list[str], Any]:
    """The messages of the cells that fail, each cell run in turn, and the emulation."""
    from IPython.core.interactiveshell import InteractiveShell

    assert NOTEBOOKS is not None
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    failed = []
    try:
        with workbench.emulated() as emulation:
            for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
                if cell["cell_type"] == "code":
                    result = shell.run_cell("".join(cell["source"]))
                    error = result.error_before_exec or result.error_in_exec
                    if error is not None:
                        failed.append(str(error).splitlines()[0])
    finally:
        InteractiveShell.clear_instance()
    return failed, emulation


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("hello_world", 2),
        ("print", 1),
        ("tensor", 0),
        ("tensorssa", 0),
        ("data_types", 0),
        ("cute_layout_algebra", 0),
        ("cuda_graphs", 402),
    ],
)
def test_every_cell_runs_or_names_the_api_that_was_dropped(name: str, launches: int) -> None:
    failed, emulation = errors_of(name)
    assert failed == DROPPED.get(name, [])
    assert len(emulation.launches) == launches and not emulation.faults


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_elementwise_add_at_its_own_size() -> None:
    """Five kernels on 2048 x 2048, each checked against torch by the notebook and launched a hundred times: three
    minutes on the numpy engine.
    """
    failed, emulation = errors_of("elementwise_add")
    assert failed == [] and not emulation.faults and len({launch.kernel for launch in emulation.launches}) == 5
