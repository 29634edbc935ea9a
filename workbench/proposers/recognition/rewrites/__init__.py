"""Writes other calls in place of some of a graph: those that matchers know, where a module says it in other ones."""
