"""Rewrites of graphs into forms that matchers know: parts, repetitions, leading rows, stores of state."""
