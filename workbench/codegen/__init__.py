"""Checked muCUTLASS program -> one self-contained CuTe DSL file that a person can read and edit."""

from __future__ import annotations

from workbench.codegen.module import check_program, compile_program, emit

__all__ = ["check_program", "compile_program", "emit"]
