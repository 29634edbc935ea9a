"""Type names for the numpy values that parts of the emulator exchange."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An array; the docstring of the function that takes it gives shape and type."""

Lanes: TypeAlias = Array | None
"""The active lanes: an int array of lane numbers in ascending order, or None for all lanes of the batch."""

Value: TypeAlias = Any
"""An array over the active lanes, or a numpy scalar that all of them share; numpy has no type for both."""
