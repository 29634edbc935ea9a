"""Mini-batches drawn by torch where the graph's arrays live, so that a GPU need not wait for the host."""
