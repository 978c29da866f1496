"""What `vestige plant` shows of its canaries, whatever they are made of."""

from collections import Counter
from collections.abc import Sequence

from vestige.cli.terminal import show_table

LISTED = 40
"""Canaries that the terminal names one by one; the manifest has them all."""


def show_canaries(
    columns: Sequence[str], rows: Sequence[Sequence[object]], copies: Sequence[int]
) -> None:
    """A table of the first canaries and, where there are more, how many have how many copies.

    Args:
        columns: what the rows hold.
        rows: one for each canary that is to be listed, ready to be shown.
        copies: how often each canary is planted, whether listed or not.
    """
    show_table("Canaries", columns, rows)
    if len(copies) > len(rows):
        number = Counter(copies)
        counts = [(many or "control", number[many]) for many in sorted(number)]
        show_table(f"All {len(copies):,}", ["copies", "canaries"], counts)
