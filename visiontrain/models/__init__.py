"""Networks: built from YAML or taken from torchvision, knowing nothing of data, losses or training."""
