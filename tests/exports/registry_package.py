"""The real nvidia-cutlass-operators, in a folder of the test: installed by pip, or as the environment has it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "nvidia-cutlass-operators==0.3.0"


def install(folder: Path) -> dict[str, str]:
    """The environment of a process that can import the package. Skips the test where it cannot be had."""
    try:
        importlib.metadata.version("nvidia-cutlass-operators")
    except importlib.metadata.PackageNotFoundError:
        words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), PACKAGE]
        done = subprocess.run(words, capture_output=True, text=True, timeout=200)
        if done.returncode:
            pytest.skip(f"pip does not get {PACKAGE}: {done.stderr[-300:]}")
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""), str(folder)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
