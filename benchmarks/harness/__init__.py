"""What a case is, how two sides are timed and checked, and how results are written."""
