"""Pooling: maxima and means of windows."""
