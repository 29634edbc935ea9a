"""Convolution kernels: direct sums, and implicit GEMMs on tensor cores by mma.sync or wgmma.

Names follow CUTLASS: an activation (n, c, d, h, w), filters (k, c, t, r, s) and an output (n, k, z, p, q); missing
extents are 1.
"""
