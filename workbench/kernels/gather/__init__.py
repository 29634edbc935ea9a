"""gather, scatter_add and scatter_max along an axis."""
