"""Rules that explain graphs: hashes of neighbourhoods, roles of nodes, symbolic features, trees that a person can read."""
