"""Lines on stderr for programs that run, but not as their users mean."""
