"""Matrix products on Hopper: TMA and mbarriers feed wgmma in warp-specialised, persistent kernels."""
