"""Reports of `vestige audit-users`."""

from vestige.reports.audit import section as section
