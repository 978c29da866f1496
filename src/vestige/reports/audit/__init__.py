"""Reports of `vestige audit-users`."""
