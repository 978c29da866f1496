"""Can this model be released? Runs on one page, limits on their numbers, and one exit code."""
