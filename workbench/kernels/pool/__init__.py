"""Pooling: maxima and averages of windows."""
