"""The composition root, a file for each mode: the only package that knows everybody."""
