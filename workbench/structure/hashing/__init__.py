"""Canonical hashes of ego graphs, and the orbits of their members."""
