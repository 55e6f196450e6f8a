"""Run a trained network on images: what to read, the results, and what to write of them."""
