"""The plan of a kernel, before its text is written, has passes over rows, lanes and sizes."""
