"""Convolutions that gather from patches of the input in shared memory, where it lies: no copy in front."""
