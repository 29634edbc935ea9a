"""Scans along an axis: prefix sums, products and maxima; each element is read and written once."""
