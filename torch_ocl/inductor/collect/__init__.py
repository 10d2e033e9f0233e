"""From Inductor's ops to values: nothing is text yet."""
