"""Metrics: what predictions are worth, as numbers."""
