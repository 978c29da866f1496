"""One room a paper: its numbers as data, three scales, trials that are kept, and `run`."""
