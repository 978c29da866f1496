"""Reports of `vestige compare`."""

from vestige.reports.comparison import section as section
