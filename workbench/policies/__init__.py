"""Policies decide the next action of a loop from the outcomes so far. They run nothing themselves."""
