"""Reports of `vestige anatomy`."""
