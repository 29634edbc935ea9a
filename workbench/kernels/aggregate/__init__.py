"""Reductions of rows of a table over compressed rows of indices (CSR)."""
