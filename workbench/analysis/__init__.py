"""Pure calculations: devices, speed of light, correctness, statistics, hunks, roofline points."""
