"""Log-probabilities of given texts' tokens, and no more of the model: access of those who are shown
what an API shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ShownToken:
    """What a model says of one token of a text.

    Attributes:
        text: of the token, as the model's own tokenizer cuts it.
        log_prob: natural, given the text before it; NaN where it is not said.
        likeliest: tokens that might stand there with their log-probabilities, the likeliest first.
    """

    text: str
    log_prob: float
    likeliest: tuple[tuple[str, float], ...] = ()


class TokenScores(Protocol):
    """Access to what a model says of the tokens of texts that it is given."""

    def scored(self, texts: Sequence[str]) -> list[tuple[ShownToken, ...] | None]:
        """The tokens of each text, which they make up together; None where there is no answer."""
        ...
