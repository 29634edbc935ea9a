"""Elementwise kernels: one expression of tensors of one shape, and of tensors that are broadcast to it."""
