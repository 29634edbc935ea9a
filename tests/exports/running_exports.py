"""Loads an exported file where nothing of the workbench can be imported, except the emulator below it.

The emulator has to be imported to stand in for the GPU; then every module of the workbench is hidden, so that the file
finds none.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from workbench.session import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from hidden_workbench import run_without_workbench as run_without_workbench
from hidden_workbench import without_workbench

LINEAR = """
import torch, torch.nn as nn
import torch.nn.functional as F
M, N, K = 16, 24, 8

def gemm(x):  # the kernel has a function of this name too
    return F.gelu(x)

class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        return gemm(self.linear(x))

def get_inputs():
    return [torch.randn(M, K)]

def get_init_inputs():
    return [K, N]
"""
ON_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
FOLDER = tempfile.TemporaryDirectory(prefix="exports-")


def load_text(text: str) -> tuple[ModuleType, Path]:
    """An exported file as a module, and its path."""
    path = Path(tempfile.mkdtemp(dir=FOLDER.name)) / "exported.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"exported_{path.parent.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does; torch.compile and pickle look there
    with without_workbench():
        spec.loader.exec_module(module)
    return module, path


def export(source: str, folder: Path, executor: str = "emulator", form: str = "custom-op", arch: str = "") -> str:
    """The planner's first version of a problem in a form; `version`: its own text."""
    path = folder / "problem.py"
    path.write_text(source)
    with Session.create(str(path), root=folder / "sessions", executor=executor, arch=arch) as session:
        version = session.generate(test=False)
        assert version is not None
        if form == "version":
            return version.proposal.candidate.source
        return session.export(version.number, form=form)


def load_wide_linear(folder: Path, form: str = "custom-op") -> ModuleType:
    """The export of a linear layer from 128 to 512 features, made on a GPU."""
    source = LINEAR.replace("M, N, K = 16, 24, 8", "M, N, K = 256, 512, 128")
    return load_text(export(source, folder, executor="gpu", form=form))[0]


def draw_rows(rows: int = 256) -> torch.Tensor:
    """Its input (rows, 128) on the GPU."""
    return torch.randn(rows, 128, device="cuda")


def gradients(model: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of the sum of squares of the result: of x and of the parameters."""
    x = x.detach().requires_grad_()
    model.zero_grad()
    (model(x) ** 2).sum().backward()
    return [tensor.grad.clone() for tensor in (x, *model.parameters()) if tensor.grad is not None]
