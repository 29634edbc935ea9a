"""Flash attention on Hopper: a warpgroup that loads by TMA, and warpgroups that multiply with wgmma."""
