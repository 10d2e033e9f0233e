"""The checks, by field. Each imports its library where it runs."""
