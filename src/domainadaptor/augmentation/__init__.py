"""Augmentations of batches of images, on tensors."""
