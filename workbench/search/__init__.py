"""Offline search in the installed CuTe DSL package, CUTLASS's headers and examples, and our examples."""

from workbench.search.query import Hit, call_tool, read, search, tool_specs

__all__ = ["Hit", "call_tool", "read", "search", "tool_specs"]
