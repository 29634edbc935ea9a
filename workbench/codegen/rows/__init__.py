"""Lowering of operations that reduce an axis: configurations of the row kernels."""
