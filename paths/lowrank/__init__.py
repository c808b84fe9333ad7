"""Two thinner layers in place of one: which directions a layer's outputs need, and how many of them."""
