"""The shell and the workspace of the command line's tests, and runs of results made by hand."""

from tests.cli.conftest import shell, tiny_encoder, workspace
from tests.reports.conftest import saved
from tests.tables import other_bits, random_table

__all__ = ["other_bits", "random_table", "saved", "shell", "tiny_encoder", "workspace"]
