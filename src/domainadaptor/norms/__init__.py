"""Norm layers that replace a network's own at test time."""
