"""Helper functions that compiled code calls, in a small subset of Python that is compiled too."""
