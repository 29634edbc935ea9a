"""Worked examples: each module configures a kernel of `workbench.kernels`, explains how it works, runs and checks it.

python -m workbench.examples.NAME
"""
