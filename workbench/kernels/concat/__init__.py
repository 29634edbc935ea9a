"""Tensors side by side along an axis."""
