"""Flash attention on Hopper: a producer warpgroup loads by TMA, MMA warpgroups multiply by wgmma."""
