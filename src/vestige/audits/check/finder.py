"""Which secrets do texts hold?"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FoundSecret:
    """A value that nobody should be able to read out of a model.

    Attributes:
        value: the secret itself.
        kind: what it looks like.
        places: for each occurrence the number of its text, from 0, and at most 300 characters of
            that text before the value.
    """

    value: str
    kind: str
    places: tuple[tuple[int, str], ...]
