"""Graphs whose nodes are trained on in mini-batches: generators, communities, samplers, and what an order of the data does to a cache."""
