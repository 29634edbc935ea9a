"""Configuration of the norms. Pure data."""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class NormConfig:
    """RMSNorm or LayerNorm over the last axis of x, or of x + residual."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "per_thread": "elements of a row that a thread should hold",
        "max_per_thread": "elements of a row that a thread holds at most",
        "max_threads": "threads of a row at most",
        "small_cta": "threads of a CTA whose rows have a warp each",
    }
    is_layer: bool = False  # LayerNorm, with a mean and a bias; else RMSNorm
    adds_residual: bool = False
    per_thread: int = 16
    max_per_thread: int = 32
    max_threads: int = 1024
    small_cta: int = 128
