"""Attention over compressed rows of indices: scores of neighbours, and their softmax in each row."""
