"""Two-dimensional convolutions that gather from channels-last images, without a copy of the activations."""
