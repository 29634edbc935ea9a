"""Convolution kernels: direct sums on CUDA cores, and implicit GEMMs on tensor cores by mma.sync or wgmma.

Names follow CUTLASS: activation (n, c, d, h, w), filter (k, c, t, r, s), output (n, k, z, p, q); missing extents are 1.
"""
