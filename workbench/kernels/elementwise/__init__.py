"""Elementwise kernels: one expression of tensors of one shape, and of tensors that broadcast to it."""
