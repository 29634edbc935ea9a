"""muCUTLASS, the small language of kernels: text -> program -> checks, canonical form, completion, explanation."""

from __future__ import annotations

from workbench.language.checks import check, configurations
from workbench.language.ir import Binding, Call, Program, Rejection, Stage
from workbench.language.parser import format_program, grammar_text, parse
from workbench.language.registry import OPERATIONS

__all__ = [
    "OPERATIONS",
    "Binding",
    "Call",
    "Program",
    "Rejection",
    "Stage",
    "check",
    "configurations",
    "format_program",
    "grammar_text",
    "parse",
]
