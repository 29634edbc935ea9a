"""The commands of a search: `run --search`, `tune --search`, and `%cutegen search-tree`."""
