"""Whether this machine has an NVIDIA GPU, without importing torch or starting CUDA."""

from __future__ import annotations

import shutil
import subprocess


def why_no_gpu() -> str | None:
    """None if there is a GPU, else a phrase that says why none can be used."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver was found (nvidia-smi is not on the path)"
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "nvidia-smi does not answer"
    return None if not done.returncode and "GPU" in done.stdout else "nvidia-smi finds no GPU"
