"""Networks for other programs: writing them, running them, and comparing what they give with what the network gives."""
