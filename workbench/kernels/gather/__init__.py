"""Gathering and scattering along an axis."""
