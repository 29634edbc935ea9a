"""Worked example kernels in CuTe DSL, each checked against torch."""
