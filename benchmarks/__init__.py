"""The benchmark harness: `make bench`, or `python -m benchmarks --help`."""
