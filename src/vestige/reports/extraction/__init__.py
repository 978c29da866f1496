"""Reports of `vestige extract-nlu`."""

from vestige.reports.extraction import section as section
