"""The rank of one phrase among all phrases of its length, by how much an update promoted them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vestige.attacks.update.differential_rank import differential_rank
from vestige.attacks.update.sampled_rank import Sampling
from vestige.results import Result
from vestige.session import Session

if TYPE_CHECKING:
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel

SAMPLES = 16384
"""Prefixes of each length that are sampled to estimate a rank that bounds leave open."""


def phrase_rank(
    run: Session,
    before: "LanguageModel",
    after: "LanguageModel",
    phrase: str,
    *,
    budget: int,
    delta: float,
) -> Result:
    """The differential rank of a phrase, exact or bounded, and its profile.

    Raises:
        ValueError: the phrase is empty, too long for a model, or has unknown words.
    """
    tokens = _tokens(before.vocabulary, phrase)
    _require_room((before, after), len(tokens))
    with run.progress("ranking") as step:
        ranked = differential_rank(
            before,
            after,
            tokens=tokens,
            budget=budget,
            delta=delta,
            sampling=Sampling(seed=run.seed, samples=SAMPLES),
            progress=step,
        )
    return Result.of(ranked)


def _tokens(vocabulary: "Vocabulary", phrase: str) -> tuple[int, ...]:
    """The phrase's token ids, none of them unknown."""
    tokens = tuple(vocabulary.encode(phrase))
    if not tokens:
        raise ValueError("`phrase` must hold at least one token, got none")
    if vocabulary.unk_id in tokens:
        unknown = [str(n) for n, token in enumerate(tokens, 1) if token == vocabulary.unk_id]
        raise ValueError(
            "`phrase` must hold only words of the models' vocabulary, got others at "
            f"{', '.join(unknown)} of its {len(tokens)} words"
        )
    return tokens


def _require_room(models: "Iterable[LanguageModel]", tokens: int) -> None:
    """Reject a phrase that a model cannot read at once."""
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    if limits and tokens > min(limits):
        raise ValueError(
            f"`phrase` must have at most {min(limits)} tokens, all that the models read at once, "
            f"got {tokens}"
        )
