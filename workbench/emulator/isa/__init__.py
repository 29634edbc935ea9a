"""Executes PTX instructions in the interpreter: one module for each family of opcodes."""
