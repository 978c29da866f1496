"""Results made by hand, as for pages."""

from tests.reports.conftest import diff, saved

__all__ = ["diff", "saved"]
