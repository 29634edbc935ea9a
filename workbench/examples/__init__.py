"""Worked example kernels: each module explains its design, runs and checks itself (`python -m workbench.examples.NAME`), and needs nothing of the workbench."""
