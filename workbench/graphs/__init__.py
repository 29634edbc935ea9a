"""Graphs whose nodes are trained on in mini-batches: generators, communities, samplers, locality."""
