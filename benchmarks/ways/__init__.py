"""The ways to a classifier that `benchmarks/accuracy.py` sets side by side, each run in a process of its own."""
