"""Names for numpy values that pass between the parts of the emulator."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An array; the docstring of whoever takes it says shape and type."""

Lanes: TypeAlias = Array | None
"""The active lanes: an int array of lane numbers in ascending order, or None for all lanes of the batch."""

Value: TypeAlias = Any
"""An array over the active lanes, or a numpy scalar that all of them share: numpy's types have no name for both."""
