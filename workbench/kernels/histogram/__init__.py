"""How often each of 0 to bins - 1 occurs in a tensor of integers."""
