"""gather and scatter_add along an axis."""
