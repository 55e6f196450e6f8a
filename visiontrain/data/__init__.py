"""Images and labels on disk → decoded, transformed, collated micro-batches, in the order of a plan."""
