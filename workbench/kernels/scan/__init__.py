"""Scans along an axis: prefix sums, products and maxima; every element is read once and written once."""
