"""Ladders of operations over compressed rows of indices."""

from __future__ import annotations

from workbench.proposers.ladders.graphs.aggregate import aggregate_rungs
from workbench.proposers.ladders.graphs.attention import sddmm_rungs, softmax_rungs

__all__ = ["aggregate_rungs", "sddmm_rungs", "softmax_rungs"]
