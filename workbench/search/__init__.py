"""Offline search in the installed CuTe DSL package, CUTLASS's headers and examples, and our examples."""

from workbench.search.examples import Example, find_example, has_index
from workbench.search.query import Hit, call_tool, read, search, tool_specs

__all__ = ["Example", "Hit", "call_tool", "find_example", "has_index", "read", "search", "tool_specs"]
