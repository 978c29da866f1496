"""Reports of `vestige anatomy`."""

from vestige.reports.anatomy import section as section
