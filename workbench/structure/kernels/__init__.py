"""Kernels as graphs: of programs, of PTX, of a module's operators; what their structure says of their times."""
