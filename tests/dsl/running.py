"""Helpers: compile a program and run it on the emulator.

A program is compiled once for all shapes and tests that use it in a row.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.hook import Emulation
from workbench.language import Binding

INIT = "def __init__(self):\n    super().__init__()\n"
FOLDER = tempfile.TemporaryDirectory(prefix="candidates-")


@functools.lru_cache(maxsize=16)  # a compiled kernel takes megabytes
def load(
    text: str, names: tuple[str, ...], operands: tuple[tuple[str, str], ...] = (), resident: int | None = None
) -> tuple[Any, Path]:
    """Return the imported candidate of a program and its file.

    `resident`: number of clusters that the device runs at once, which is compiled into the candidate.
    """
    source = compile_program(text, Binding(init_source=INIT, forward_arguments=names, operands=operands))
    module, path = imported(source)
    if resident is not None and hasattr(module, "max_active_clusters"):
        module.max_active_clusters = lambda: resident
    return module, path


def imported(source: str) -> tuple[Any, Path]:
    """Write a candidate to a file and import it; return the module and the file."""
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"candidate_{path.parent.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, path


def launched(
    text: str,
    arguments: tuple[torch.Tensor, ...],
    names: tuple[str, ...],
    *,
    operands: tuple[tuple[str, str], ...] = (),
    resident: int | None = None,
    arch: str | None = None,
) -> tuple[torch.Tensor, Emulation]:
    """Return a program's result and its emulation, by default for the architecture that the text names."""
    module, path = load(text, names, operands, resident)
    arch = arch or ("sm_90a" if "sm_90a" in text else "sm_80")
    with emulated(arch=arch, device="H200", source_file=str(path)) as emulation:
        return module.ModelNew()(*arguments), emulation


def run(
    text: str, arguments: tuple[torch.Tensor, ...], names: tuple[str, ...], operands: tuple[tuple[str, str], ...] = ()
) -> torch.Tensor:
    """Return a program's result."""
    return launched(text, arguments, names, operands=operands)[0]
