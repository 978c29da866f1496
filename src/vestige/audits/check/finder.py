"""Secrets in a list of texts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FoundSecret:
    """A value that may be secret, and where it occurs.

    Attributes:
        value: the secret itself.
        kind: what it is, such as "phone number".
        places: number of a text from 0, and at most 300 characters before the value in it.
    """

    value: str
    kind: str
    places: tuple[tuple[int, str], ...]
