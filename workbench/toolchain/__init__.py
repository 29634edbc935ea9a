"""Describes compiled modules (registers, spills, shared memory, SASS) and explains errors on the candidate's
own lines.
"""

from __future__ import annotations

from workbench.toolchain.binary import describe_module, instruction_mix, sass_text
from workbench.toolchain.explain import NEEDS_ARCH, explain_error

__all__ = ["NEEDS_ARCH", "describe_module", "explain_error", "instruction_mix", "sass_text"]
