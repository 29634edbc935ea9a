"""Pure numbers: devices, speed of light, correctness, statistics, hunks, roofline points, integrity. No torch, no I/O."""
