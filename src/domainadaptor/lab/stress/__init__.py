"""Hostile streams of batches, and how much of a network's accuracy they destroy."""
