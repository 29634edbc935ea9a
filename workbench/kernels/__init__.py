"""Kernel library: CuTe DSL modules over frozen configs.

`workbench.codegen` specialises them to one self-contained file.
"""
