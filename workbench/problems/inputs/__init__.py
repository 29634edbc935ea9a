"""Inputs whose integers are those of the problem, while large floating-point tensors are not made."""
