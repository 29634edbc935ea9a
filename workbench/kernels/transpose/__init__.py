"""Transposes of matrices."""
