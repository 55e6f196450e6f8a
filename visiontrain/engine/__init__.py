"""Training for any network and any iterable of windows; knows no task and no data format."""
