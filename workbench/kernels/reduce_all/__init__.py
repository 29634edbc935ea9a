"""Reductions of all elements of a tensor in one launch."""
