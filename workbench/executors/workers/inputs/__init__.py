"""The values of a trial: inputs of special values and layouts, and parameters and caches that are drawn."""
