"""Hopper's instructions: bulk copies and TMA, mbarriers, clusters, tensor maps, wgmma."""
