"""Reads at another index of some axes: pad, flip, roll and interpolate."""

from __future__ import annotations

from workbench.language.operations.remap import operation

OPERATIONS = operation.OPERATIONS
