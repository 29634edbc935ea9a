"""The real packages that exports are for, in a folder of the test: installed by pip, or as the environment has them."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

REGISTRY = "nvidia-cutlass-operators==0.3.0"


def install(folder: Path, *packages: str) -> dict[str, str]:
    """The environment of a process that can import packages (the registry). Skips the test where one cannot be had."""
    for package in packages or (REGISTRY,):
        try:
            importlib.metadata.version(package.partition("==")[0])
        except importlib.metadata.PackageNotFoundError:
            words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), package]
            done = subprocess.run(words, capture_output=True, text=True, timeout=200)
            if done.returncode:
                pytest.skip(f"pip does not get {package}: {done.stderr[-300:]}")
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""), str(folder)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
