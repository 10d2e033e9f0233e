"""Cases: what one is, how two sides are timed and checked, and how results are written."""
