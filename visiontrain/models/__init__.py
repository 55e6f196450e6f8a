"""Networks: built from YAML, knowing nothing of data, losses or training."""
