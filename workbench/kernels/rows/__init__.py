"""Reductions along an axis, and what is computed from them: sums, softmax, norms, cross entropy."""
