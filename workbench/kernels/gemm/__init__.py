"""Matrix products: simple kernels, sm_80 tensor cores, sm_90a warpgroups."""
