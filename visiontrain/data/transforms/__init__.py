"""Geometry and color that turn decoded images into samples."""
