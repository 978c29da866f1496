"""Given and family names that may stand for others: common ones, listed for this project."""

from pathlib import Path


def _read() -> dict[str, tuple[str, ...]]:
    """Names of each section, headed "# given" and "# family"."""
    listing = Path(__file__).with_suffix(".txt").read_text("utf-8")
    sections = (section.split() for section in listing.split("#")[1:])
    return {role: tuple(names) for role, *names in sections}


_NAMES = _read()
GIVEN, FAMILY = _NAMES["given"], _NAMES["family"]
