"""What is decided of a kernel before its text is written: passes over rows, lanes, sizes."""
