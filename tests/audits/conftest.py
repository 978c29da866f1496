"""Fixtures of the command line, of small tables and of saved results."""

from tests.cli.conftest import shell, tiny_encoder, workspace
from tests.reports.conftest import saved
from tests.tables import other_bits, random_table

__all__ = ["other_bits", "random_table", "saved", "shell", "tiny_encoder", "workspace"]
