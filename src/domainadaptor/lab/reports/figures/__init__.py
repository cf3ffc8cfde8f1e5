"""Figures from numbers; matplotlib is loaded when the first one is drawn."""
