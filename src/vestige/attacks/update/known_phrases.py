r"""Phrases that are listed: how much an update promoted each, and how much null models do.

A phrase's score is the sum of its tokens' scores (Zanella-Béguelin et al. 2020, Definition 1), at
the place where that is highest: a document's beginning, behind a prompt, or anywhere, where its
first token is context. By m null models, made as the update was of clean text,

.. math:: p = \frac{1 + \#\{\text{null scores of the phrase} \ge s\}}{1 + m}

(Phipson and Smyth 2010, "Permutation p-values should never be zero", eq. 1). A search pays a toll
for every token, since it looks at many phrases; who asks for one does not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.reading import gains_behind
from vestige.claims import Direct
from vestige.data.secret_shapes import Secret
from vestige.data.vocabulary import Vocabulary

ANYWHERE = "within a text"
BEGINNING = "the beginning of a document"


@dataclass(frozen=True, kw_only=True)
class KnownPhrase:
    """What an update did to a listed phrase.

    Attributes:
        tokens: ids, as they stand where the score is highest.
        pieces: the text of each.
        phrase: their text together.
        gains: the score of each token after those before it; 0 of one that is context.
        score: their sum.
        place: where it is highest: the name of a context, a document's beginning, or anywhere.
        number: of the secret in its list.
        nulls: the scores of the same phrase under null models.
        texts: texts of the search that hold it verbatim.
        direct: what that proves; None where nothing was generated or coincidence has no bound.
        row_found: place of the finding that tells most of it, from 0; None where none tells any two
            tokens.
        part: how much of it that finding tells, of 1.
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    phrase: str
    gains: tuple[float, ...]
    score: float
    place: str
    number: int = 1
    nulls: tuple[float, ...] = ()
    texts: int = 0
    direct: Direct | None = None
    row_found: int | None = None
    part: float = 0.0

    @property
    def reached(self) -> int:
        """How many null models promoted it as much."""
        return sum(score >= self.score for score in self.nulls)

    @property
    def p_value(self) -> float | None:
        """(1 + null scores as high) / (1 + null models); None without any."""
        return (1 + self.reached) / (1 + len(self.nulls)) if self.nulls else None

    @property
    def generated(self) -> bool:
        """Whether it was generated verbatim, and not by coincidence."""
        return self.direct is not None and self.direct.conclusive


@dataclass(frozen=True)
class Asked:
    """A phrase as models read it.

    Attributes:
        first: ids where it begins a text.
        within: ids where a word stands before it.
        text: the phrase.
        number: of it in its list.
        secret: what of it varies; None where that is not known.
    """

    first: tuple[int, ...]
    within: tuple[int, ...]
    text: str = ""
    number: int = 1
    secret: Secret | None = None
    longest: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.first or not self.within:
            raise ValueError("a phrase must hold one token at least, got none")
        object.__setattr__(self, "longest", max(len(self.first), len(self.within)))

    @classmethod
    def of(
        cls, phrase: str, vocabulary: Vocabulary, *, number: int = 1, secret: Secret | None = None
    ) -> "Asked":
        """The ids of a text; subwords carry the space before them."""
        text = phrase.strip()
        first, within = (tuple(vocabulary.encode(one)) for one in (text, f" {text}"))
        return cls(first, within, text, number, secret)


@torch.no_grad()
def known_phrases(
    pair: ModelPair, asked: Sequence[Asked], *, contexts: Mapping[tuple[int, ...], str] = {}
) -> list[KnownPhrase]:
    """Every phrase at the place where the update promoted it most.

    Args:
        pair: the two snapshots and the score of a token.
        asked: the phrases.
        contexts: names of the prompts behind which they may stand, by their ids.

    Returns:
        One for each, in their order; of places that score alike the first.
    """
    if not asked:
        return []
    beginning = pair.after.vocabulary.eos_id if pair.beginning is None else pair.beginning
    places = {(beginning,): BEGINNING, **contexts}
    best: list[KnownPhrase | None] = [None] * len(asked)
    firsts, within = ([getattr(one, name) for one in asked] for name in ("first", "within"))
    for ids, name in places.items():
        begun = pair.read(torch.tensor([ids], device=pair.device))
        state = begun[torch.zeros(len(asked), dtype=torch.int64, device=pair.device)]
        _keep_best(best, firsts, gains_behind(pair, state, firsts), name, pair)
    heads = torch.tensor([ids[0] for ids in within], device=pair.device)
    later = gains_behind(pair, pair.enter(heads), [ids[1:] for ids in within])
    _keep_best(best, within, [[0.0, *gains] for gains in later], ANYWHERE, pair)
    return [one for one in best if one is not None]


def told_by(
    known: KnownPhrase, asked: Asked, findings: Sequence[Sequence[int]]
) -> tuple[int, float]:
    """The finding that tells most of a phrase, and how much of it: (its place, a share).

    Args:
        known: the phrase.
        asked: as models read it.
        findings: ids of each.

    Returns:
        (-1, 0.0) where no finding tells two of its tokens in a row.
    """
    best, part = -1, 0.0
    for place, tokens in enumerate(findings):
        for phrase in {asked.first, asked.within, known.tokens}:
            run = _longest_run(phrase, tokens)
            if run > part * len(phrase) and (run > 1 or len(phrase) == 1):
                best, part = place, run / len(phrase)
    return best, part


def _keep_best(
    best: list[KnownPhrase | None],
    texts: Sequence[tuple[int, ...]],
    gains: Sequence[Sequence[float]],
    place: str,
    pair: ModelPair,
) -> None:
    """Put each phrase where it scores higher than elsewhere."""
    words = pair.after.vocabulary
    for number, (ids, own) in enumerate(zip(texts, gains, strict=True)):
        other, score = best[number], math.fsum(own)
        if other is None or score > other.score + ROUNDING:
            best[number] = KnownPhrase(
                tokens=ids,
                pieces=tuple(words.piece(token) for token in ids),
                phrase=words.decode(ids).strip(),
                gains=tuple(own),
                score=score,
                place=place,
            )


ROUNDING = 1e-5
"""Scores that differ by less are alike."""


def _longest_run(phrase: Sequence[int], tokens: Sequence[int]) -> int:
    """Tokens of the longest run that both have."""
    best, ends = 0, [0] * (len(tokens) + 1)
    for one in phrase:
        ends = [0] + [ends[i] + 1 if one == other else 0 for i, other in enumerate(tokens)]
        best = max(best, *ends)
    return best
