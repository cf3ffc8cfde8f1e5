"""Training on source domains: algorithms, the loop, and the selection of weights."""
