"""Labeled images of several domains: data sets, corruptions, preprocessing and loading."""
