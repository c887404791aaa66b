"""Where allocations come from."""
