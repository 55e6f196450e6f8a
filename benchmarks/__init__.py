"""What costs time, measured on this machine: `python -m benchmarks`."""
