"""Predictions, runs and trainings on several machines, with Ray."""
