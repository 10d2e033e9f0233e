"""The benchmark harness: `make bench`, or `python -m benchmarks --help`."""

import os

# Beside CUDA, too; benchmarks.harness.worker keeps it from CUDA's own process.
os.environ.setdefault("TORCH_OCL_AUTOLOAD", "always")
