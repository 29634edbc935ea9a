"""Kernels that only read, which measure the bandwidth of L2 and of shared memory."""
