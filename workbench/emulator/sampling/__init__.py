"""Cheap samples of a grid: which values a sample needs, and how the middle of long loops is skipped."""
