"""Programs that answer one question each: `python -m benchmarks.studies.NAME --help`."""
