"""What was exported launches on a real GPU where nothing of the workbench can be imported: a library that was compiled
ahead of time, and a kernel in NVIDIA's operator registry. `pytest -m gpu tests/gpu/test_exports_launched.py -s`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from hidden_workbench import run_without_workbench

from workbench.proposers.operators import Operators
from workbench.protocols import PLAIN
from workbench.records import Ask, Proposal
from workbench.session import Session

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LINEAR = """
import torch, torch.nn as nn
M, N, K = 512, 1024, 256

class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))

def get_inputs():
    return [torch.randn(M, K)]

def get_init_inputs():
    return [K, N]
"""
PRODUCT = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.randn(1024, 512).bfloat16(), torch.randn(512, 768).bfloat16()]
"""
SOFTMAX = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.randn(512, 4096)]
"""
LAUNCH = """
import torch, cutlass.cute as cute
compile_any = cute.compile
def compile(function, *given, **options):
    if getattr(function, "__name__", "") == "_host_function":  # of CuTe DSL's own question how many clusters fit
        return compile_any(function, *given, **options)
    raise AssertionError("a kernel was compiled that the library should hold")
import load, problem, reference
cute.compile = compile
given = problem.get_init_inputs() if hasattr(problem, "get_init_inputs") else []
torch.manual_seed(0)
wanted = reference.Model(*given).cuda().eval()
model = load.ModelNew(*given).cuda().eval()
model.load_state_dict(wanted.state_dict())
inputs = [one.cuda() for one in problem.get_inputs()]
with torch.no_grad():
    torch.testing.assert_close(model(*inputs), wanted(*inputs), rtol=2e-2, atol=2e-2)
print("launched")
"""
QUERY = """
import torch
import product  # registers the kernel
import cutlass.operators as ops
a = torch.randn(1024, 512, device="cuda").bfloat16()
b = torch.randn(512, 768, device="cuda").bfloat16()
out = torch.empty(1024, 768, device="cuda").bfloat16()
query = ops.GemmArguments(a, b, out, accumulator_type=torch.float32)
[ours] = [item for item in ops.get_operators(query) if type(item).__module__ == "product"]
ours.run(query)
torch.testing.assert_close(out.float(), (a.float() @ b.float()), rtol=2e-2, atol=0.2)
print("launched")
"""


def run(folder: Path, *command: str) -> str:
    """What a command prints where the workbench cannot be imported."""
    done = run_without_workbench(folder, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def write(folder: Path, problem: str, form: str, file: str) -> None:
    """The planner's first version, exported in a form."""
    with Session.create(problem, root=folder / "sessions", executor="gpu", calibrate=False) as session:
        version = session.generate(test=False)
        assert version is not None
        session.export(version.number, folder / file, form=form)


@pytest.mark.parametrize("source", [LINEAR, SOFTMAX, PRODUCT], ids=["linear", "softmax", "product"])
def test_a_library_of_compiled_kernels(source: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("the library is linked by gcc")
    (tmp_path / "problem.py").write_text(source)
    write(tmp_path, str(tmp_path / "problem.py"), "ahead-of-time", "out")
    (tmp_path / "out" / "reference.py").write_text(source)
    major, minor = torch.cuda.get_device_capability()
    run(tmp_path / "out", sys.executable, "build.py", f"sm_{major}{minor}{'a' if major >= 9 else ''}")
    assert run(tmp_path / "out", sys.executable, "-W", "ignore", "-c", LAUNCH).strip().endswith("launched")


def test_in_the_registry_of_operators(tmp_path: Path) -> None:
    pytest.importorskip("cutlass.operators")
    (tmp_path / "problem.py").write_text(PRODUCT)
    write(tmp_path, str(tmp_path / "problem.py"), "operators", "product.py")
    assert run(tmp_path, sys.executable, "-W", "ignore", "-c", QUERY).strip().endswith("launched")


def test_the_registry_as_rival(tmp_path: Path) -> None:
    pytest.importorskip("cutlass.operators")
    (tmp_path / "problem.py").write_text(PRODUCT)
    problem = str(tmp_path / "problem.py")
    with Session.create(problem, root=tmp_path / "sessions", executor="gpu", calibrate=False) as session:
        ask = Ask(problem=session.problem, facts=session.facts, arch=session.arch)
        [first] = Operators().propose(ask, PLAIN)
        assert isinstance(first, Proposal), first
        verdict = session.edit(first.candidate.source, title=first.title).trials[-1].verdict
        assert verdict.correct and verdict.time_provenance == "measured" and verdict.time_s is not None, verdict
        print(first.title, f"{verdict.time_s * 1e6:.1f} us")
