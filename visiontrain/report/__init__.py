"""Pictures of a run: curves of its numbers, tiles of its batches."""
