"""Profilers: an outcome's counters and binaries -> a profile that a person can read."""
