"""`export --as ahead-of-time`: the folder's library is built and loaded, from Python and from C++, where nothing of the
workbench can be imported. A launch needs a GPU; without one the loaded function checks its arguments up to that.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from running_exports import LINEAR, run_without_workbench

from workbench.errors import UserError
from workbench.session import Session

PRODUCT = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.randn(256, 128).bfloat16(), torch.randn(128, 512).bfloat16()]
"""
# The kernels are found in the library and know their arguments; nothing is compiled.
LOAD = """
import json, cutlass.cute as cute
cute.compile = None
import load, kernel
assert "workbench" not in __import__("sys").modules
names = json.load(open("kernels.json"))
for place, name in names.items():
    function = place.split()[0]
    try:
        load.library[name]()
    except TypeError as error:
        assert f"calling: `{function}(" in str(error), error
    else:
        raise AssertionError("it was called without arguments")
import problem
given = problem.get_init_inputs()
model = load.ModelNew(*given)
asked = []
find = kernel.compiled.get
kernel.compiled.get = lambda place, default=None: asked.append(find(place, default)) or asked[-1]
try:
    model(*problem.get_inputs())
except Exception as error:
    print(type(error).__name__, error)
assert asked and all(isinstance(one, type(load.library[name])) for one in asked), asked
"""


def write(folder: Path, problem: str, arch: str | None = None, program: str = "") -> Path:
    with Session.create(problem, root=folder / "sessions", arch=arch) as session:
        version = session.program(program, test=False) if program else session.generate(test=False)
        assert version is not None
        session.export(version.number, folder / "out", form="ahead-of-time")
    return folder / "out"


@pytest.mark.few(1)
@pytest.mark.parametrize("problem", ["linear.py", "softmax", "matmul"])
def test_a_library_is_built_and_found_from_python_and_from_cpp(problem: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("the library is linked by gcc")
    if problem == "linear.py":
        (tmp_path / problem).write_text(LINEAR)
        problem = str(tmp_path / problem)
    folder = write(tmp_path, problem)
    built = run_without_workbench(folder, sys.executable, "build.py", "sm_90a")
    assert built.returncode == 0, built.stderr[-2000:]
    names = built.stdout.split()
    assert names == list(json.loads((folder / "kernels.json").read_text()).values()) and names
    loaded = run_without_workbench(folder, sys.executable, "-c", LOAD)
    assert loaded.returncode == 0, loaded.stderr[-2000:]
    flags = run_without_workbench(
        folder, sys.executable, "-m", "tvm_ffi.config", "--cxxflags", "--ldflags", "--libs"
    ).stdout.split()
    library = run_without_workbench(folder, sys.executable, "-m", "tvm_ffi.config", "--libdir").stdout.strip()
    made = run_without_workbench(folder, "g++", "load.cpp", *flags, f"-Wl,-rpath,{library}", "-o", "load")
    assert made.returncode == 0, made.stderr[-2000:]
    assert run_without_workbench(folder, "./load", "./kernels.so", *names).stdout.split() == names
    assert run_without_workbench(folder, "./load", "./kernels.so", "none").returncode == 1


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "settings", ["", ".schedule(cooperative) .streamk(yes) .mma(bf16)"], ids=["planned", "stream-k"]
)
def test_a_product_for_hopper_is_built_without_one(settings: str, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PRODUCT)
    program = f"gemm(a, b) .arch(sm_90a) .tile(128, 128, 64) .cluster(2, 1) {settings}" if settings else ""
    folder = write(tmp_path, str(tmp_path / "problem.py"), "sm_90a", program)
    built = run_without_workbench(folder, sys.executable, "build.py", "sm_90a")
    assert built.returncode == 0 and built.stdout.startswith("launch_gemm"), built.stderr[-2000:]
    unknown = run_without_workbench(folder, sys.executable, "build.py", "sm_91a")
    assert unknown.returncode == 1 and "build on a machine that has one" in unknown.stderr


def test_a_version_that_launches_otherwise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(LINEAR)
    with Session.create(str(tmp_path / "problem.py"), root=tmp_path / "sessions") as session:
        version = session.edit(LINEAR.replace("class Model(", "class ModelNew("), test=False)
        with pytest.raises(UserError, match="launches its kernels in a way of its own"):
            session.export(version.number, tmp_path / "out", form="ahead-of-time")


def test_an_architecture_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(LINEAR)
    folder = write(tmp_path, str(tmp_path / "problem.py"))
    asked = run_without_workbench(folder, sys.executable, "build.py")
    assert asked.returncode == 1 and "python build.py\nARCH" in asked.stderr


def test_where_exports_run_the_workbench_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = run_without_workbench(tmp_path / "out", sys.executable, "-c", "import torch, workbench.session")
    assert done.returncode == 1 and "ImportError: an exported file imports workbench" in done.stderr
