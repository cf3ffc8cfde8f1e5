"""Training on source domains: algorithms, the loop, and how weights are chosen."""
