"""Ladders of operations over compressed rows of indices."""

from __future__ import annotations

from workbench.proposers.ladders.graphs.aggregate import aggregate_rungs

__all__ = ["aggregate_rungs"]
