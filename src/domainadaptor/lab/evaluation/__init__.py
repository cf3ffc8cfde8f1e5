"""Evaluation of adaptation methods on streams of test images."""
