"""Losses, as sums over a micro-batch with their normalizers; mathematics only."""
