"""Hostile streams of batches, and what they leave of a network's knowledge."""
