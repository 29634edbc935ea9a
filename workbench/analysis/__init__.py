"""Pure numbers: devices, speed of light, statistics, hunks, roofline, integrity. No torch, no I/O."""
