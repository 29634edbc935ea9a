"""Reads at another index of some axes: padding, cropping, flips, rolls and resizing."""
