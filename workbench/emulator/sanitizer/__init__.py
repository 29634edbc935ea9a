"""Checks of a running kernel: races, wgmma hazards, uninitialised values, deadlocks."""
