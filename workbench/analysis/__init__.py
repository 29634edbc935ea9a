"""Pure numbers: devices, speed of light, correctness, statistics, hunks, roofline, integrity. No torch, no I/O."""
