"""A release gate over run directories: limits, verdicts, what is new, and a file for pipelines."""
