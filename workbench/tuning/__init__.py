"""Tuning: a problem and a space of configurations -> a landscape, measured on this machine's GPUs, with resume."""
