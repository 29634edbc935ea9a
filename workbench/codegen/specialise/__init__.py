"""Partial evaluation of the kernel library: a host function and its configuration -> one self-contained file."""
