"""A program of the language, compiled and run on the emulator."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from workbench.dsl import Binding, compile_program
from workbench.emulator import emulated

INIT = "def __init__(self):\n    super().__init__()\n"


def run(folder: Path, text: str, arguments: tuple[torch.Tensor, ...], names: tuple[str, ...], operands: tuple[tuple[str, str], ...] = ()) -> torch.Tensor:
    source = compile_program(text, Binding(init_source=INIT, forward_arguments=names, operands=operands))
    assert source == compile_program(text, Binding(init_source=INIT, forward_arguments=names, operands=operands))
    path = folder / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"candidate_{folder.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with emulated(source_file=str(path), **({"device": "H200", "arch": "sm_90a"} if "sm_90a" in text else {})):
        result: torch.Tensor = module.ModelNew()(*arguments)
    return result
