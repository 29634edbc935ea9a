"""A job on its way to a worker process and back: the server's client, folders, tensors, requests, confinement."""
