"""One paper = one file: its numbers, three scales, and `run`."""
