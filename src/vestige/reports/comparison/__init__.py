"""Reports of `vestige compare`."""
