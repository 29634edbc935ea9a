"""Policies decide what a loop does next; they see outcomes and run nothing."""
