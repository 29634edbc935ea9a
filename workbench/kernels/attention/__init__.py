"""Flash attention on wgmma, on mma.sync or on the ordinary pipes; or three kernels for large head dimensions."""
