"""A bare GPU node: the commands that measure need no package of the views, of a language model or of a formatter.

The packages are hidden from every process, as if they were not installed; candidates run on the emulator.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# what such a node has: torch and CuTe DSL, then pure Python, then wheels of machine code: libcst, by which files of
# kernels are written, and psutil, by which workers are watched
NEEDED = {
    *("torch", "nvidia-cutlass-dsl", "apache-tvm-ffi"),
    *("cattrs", "jinja2", "lark", "nvidia-ml-py", "tqdm"),
    *("numpy", "libcst", "psutil"),
}
# packages of pyproject.toml that it does not need, with the names of their modules and what those import
HIDDEN = {
    "anywidget": ("anywidget", "psygnal"),
    "ipykernel": ("ipykernel", "comm"),
    "ipython": ("IPython", "traitlets"),
    "ipywidgets": ("ipywidgets",),
    "jupyterlab": ("jupyterlab", "jupyter_client", "jupyter_core"),
    "llvmlite": ("llvmlite",),  # makes the emulator faster
    "nbconvert": ("nbconvert", "nbclient"),
    "nbformat": ("nbformat",),
    "nvidia-cuda-nvdisasm": (),
    "openai": ("openai",),
    "pandas": ("pandas",),
    "plotly": ("plotly",),
    "ruff": ("ruff",),
}
HIDE = """
import sys
from importlib.machinery import PathFinder

MODULES, PACKAGES = {modules!r}, {packages!r}


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in MODULES else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *arguments, **named):
        found = super().find_distributions(*arguments, **named)
        return (one for one in found if one.metadata["Name"] not in PACKAGES)


sys.meta_path[:] = [Hiding if one is PathFinder else one for one in sys.meta_path]
"""
SIZES = ("--set", "batch_size=4", "--set", "dim=256")


@pytest.fixture
def node(tmp_path: Path) -> dict[str, str]:
    """The environment of a node without the hidden packages and without tools on the path."""
    modules = {module for names in HIDDEN.values() for module in names}
    hide = HIDE.format(modules=modules, packages=set(HIDDEN))
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(hide)
    return os.environ | {
        "PYTHONPATH": f"{tmp_path / 'hide'}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "CUTEGEN_ROOT": str(tmp_path / "sessions"),
    }


def cutegen(node: dict[str, str], folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "workbench", *arguments]
    done = subprocess.run(command, env=node, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def test_every_dependency_is_needed_by_such_a_node_or_hidden_from_it() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[<>=]", one)[0] for one in declared} == NEEDED | set(HIDDEN)


def test_the_packages_are_hidden(node: dict[str, str], tmp_path: Path) -> None:
    script = "import importlib.util as u, importlib.metadata as m; print(u.find_spec('pandas')); m.version('ruff')"
    done = subprocess.run([sys.executable, "-c", script], env=node, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "None\n" and "PackageNotFoundError" in done.stderr


def test_a_session_is_run_and_exported(node: dict[str, str], tmp_path: Path) -> None:
    """In one process, which imports once."""
    on = ("softmax", *SIZES, "--executor", "emulator")
    commands = (["run", *on, "--steps", "0"], ["export", "best.py"], ["history"])
    script = f"from workbench.cli import main\nassert [main(list(one)) for one in {commands!r}] == [0, 0, 0]"
    done = subprocess.run([sys.executable, "-P", "-c", script], env=node, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert "accepted" in done.stdout and "written to best.py" in done.stdout
    ast.parse((tmp_path / "best.py").read_text())
    assert "v1" in done.stdout.partition("written to best.py")[2]


@pytest.mark.slow
def test_what_was_exported_is_right(node: dict[str, str], tmp_path: Path) -> None:
    """No formatter has seen it."""
    on = ("softmax", *SIZES, "--executor", "emulator")
    cutegen(node, tmp_path, "run", *on, "--steps", "0")
    cutegen(node, tmp_path, "export", "best.py")
    (row,) = json.loads(cutegen(node, tmp_path, "history", "--session", "softmax", "--json"))
    assert row["correct"] and row["device"] == "H200" and row["measured_s"] is None
    verdict = json.loads(cutegen(node, tmp_path, "test", "softmax", "best.py", *on[1:], "--json"))
    assert verdict["correct"]


@pytest.mark.slow
def test_a_version_is_profiled(node: dict[str, str], tmp_path: Path) -> None:
    said = cutegen(node, tmp_path, "profile", "softmax", "softmax(x) .threads_per_row(32)", *SIZES)
    assert "instructions" in said


@pytest.mark.slow
def test_a_problem_is_tuned(node: dict[str, str], tmp_path: Path) -> None:
    said = cutegen(node, tmp_path, "tune", "softmax", *SIZES, "--dry-run", "--budget", "1", "--export", "tuned.py")
    assert "1 of 1 configurations ran on the emulator, without times, 1 are correct" in said


def test_pictures_are_the_same_without_plotly(node: dict[str, str], tmp_path: Path) -> None:
    """Such a node writes reports and pictures for others to look at."""
    script = """
import sys
from workbench import landscapes
from workbench.views.plots.heat_map import heat_map
from workbench.views.plots.landscape import landscape_summary, regret_curves
from workbench.views.plots.level_roofline import Point, draw_levels
from workbench.views.plots.measures import draw_measures
from workbench.records import Measure

known = landscapes.landscapes()
roofs, peaks = [("DRAM", 4e12, "measured"), ("L2", 8e12, "measured")], [("fp32", 6e13, "data sheet")]
shown = [heat_map(known["softmax"]), landscape_summary([known["softmax"], known["row_sum"]])]
shown.append(regret_curves("r", {"a": [0.5, 0.1], "b": [0.4, 0.2]}))
shown.append(draw_levels("l", [Point("k", "L2", 2.0, 1e12)], roofs, peaks))
pictures = [one.svg for one in shown] + [draw_measures([Measure(name="m", value=3.0, limit=2.0, unit="x")])]
print("plotly" in sys.modules, *pictures, sep="\\n")
"""
    said = []
    for where in (node, {**os.environ, "PYTHONPATH": str(ROOT)}):
        done = subprocess.run([sys.executable, "-c", script], env=where, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(done.stdout.partition("\n"))
    (hidden, _, plain), (seen, _, checked) = said
    assert (hidden, seen) == ("False", "True") and plain == checked and plain.count("<svg") == 5


def test_what_cannot_do_without_says_so(node: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "workbench", "lab", "--folder", str(tmp_path / "lab")]
    done = subprocess.run(command, env=node, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "cutegen: JupyterLab is not installed: pip install jupyterlab\n")
    said = cutegen(node, tmp_path, "doctor")
    assert "no   nvdisasm (SASS): nvdisasm is not installed: pip install nvidia-cuda-nvdisasm" in said
