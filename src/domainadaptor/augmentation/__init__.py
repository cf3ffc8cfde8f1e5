"""Augmentations of batches of images."""
