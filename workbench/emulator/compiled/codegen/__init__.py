"""Translates PTX to LLVM IR, block by block."""
