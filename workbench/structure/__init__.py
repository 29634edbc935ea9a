"""Rules that explain graphs: hashes of neighbourhoods, roles of nodes, symbolic features, readable trees."""
