r"""What did this update reveal? The phrases that the model after it likes better.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", CCS, arXiv:1912.07942. Both snapshots are queried; no training data is seen.

Differs from the paper: seed and extend is the default search and the smoothed log-ratio the
default score (see `seed_and_extend` and `token_scores` for why); near-copies are folded; and a
null pair, two snapshots that differ by chance alone, sets what counts as found (see `chance`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from vestige import _validate
from vestige.attacks.beam_search import (
    Beam,
    Progress,
    beam_search,
    group_beam_search,
    halving_widths,
)
from vestige.attacks.chance import Chance
from vestige.attacks.model_pair import ModelPair
from vestige.attacks.near_copies import fold, is_run
from vestige.attacks.seed_and_extend import Growth, Phrase, seed_and_extend, untold
from vestige.attacks.token_scores import TokenScore, token_score
from vestige.models.checkpoints import check_compatible
from vestige.models.largest import rounded
from vestige.models.protocols import NextToken


@dataclass(frozen=True, kw_only=True)
class Beams:
    """The paper's search, from the beginning of a text.

    Attributes:
        length: tokens per phrase.
        width: candidates kept; None starts with the whole vocabulary and halves.
        floor: the halving beam never becomes narrower.
        groups: parts of the first tokens that are searched apart.
    """

    length: int = 5
    width: int | None = None
    floor: int = 100
    groups: int = 1

    def __post_init__(self) -> None:
        _validate.positive(length=self.length, floor=self.floor, groups=self.groups)
        if self.width is not None:
            _validate.positive(width=self.width)

    def widths(self, vocab_size: int) -> list[int]:
        """Candidates kept after each token."""
        if self.width is None:
            return halving_widths(vocab_size, self.length, floor=self.floor)
        return [min(self.width, vocab_size)] + [self.width] * (self.length - 1)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One phrase that the update promoted, with its near-copies.

    Attributes:
        tokens: ids.
        pieces: the text of each.
        phrase: their text together.
        gains: the score of each token after those before it.
        score: of the phrase.
        group: the group of first tokens in a group beam search, else the finding's number.
        copies: near-copies folded in.
        run: whether it mostly repeats itself.
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    phrase: str
    gains: tuple[float, ...]
    score: float
    group: int
    copies: int
    run: bool


@dataclass(frozen=True, kw_only=True)
class UpdateDiff:
    """The phrases that an update promoted most, best first.

    Attributes:
        findings: near-copies folded, best first.
        search: "seed-and-extend" or "beam".
        score: name of the token score.
        chance: the scores that a null pair reached, or None without one.
    """

    findings: tuple[Finding, ...]
    search: str
    score: str
    chance: Chance | None

    @property
    def threshold(self) -> float | None:
        """The score above which a phrase counts as found; None without a null pair."""
        return None if self.chance is None else self.chance.threshold

    def found(self, finding: Finding) -> bool | None:
        """Whether chance hardly gives such a score; None without a null pair."""
        return None if self.threshold is None else finding.score > self.threshold

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        phrases = [finding for finding in self.findings if not finding.run]
        known = None if self.threshold is None else sum(bool(self.found(f)) for f in phrases)
        return {
            "search": self.search,
            "score": self.score,
            "phrases": len(phrases),
            "runs": len(self.findings) - len(phrases),
            "found": known,
            "threshold": self.threshold,
            "null_top_score": None if self.chance is None else self.chance.best,
            "top_score": phrases[0].score if phrases else None,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a finding; `pandas.DataFrame(result.rows())` is the frame."""
        for rank, finding in enumerate(self.findings):
            yield {
                "rank": rank,
                "score": finding.score,
                "phrase": finding.phrase,
                "tokens": list(finding.tokens),
                "group": finding.group,
                "pieces": list(finding.pieces),
                "token_scores": list(finding.gains),
                "copies": finding.copies,
                "kind": "run" if finding.run else "phrase",
                "found": self.found(finding),
                "e_value": None if self.chance is None else self.chance.expected(finding.score),
            }


@torch.no_grad()
def update_diff(
    before: NextToken,
    after: NextToken,
    *,
    search: Growth | Beams | None = None,
    score: TokenScore | None = None,
    null: NextToken | Chance | None = None,
    top: int = 1000,
    progress: Progress | None = None,
) -> UpdateDiff:
    r"""Search for the phrases that an update promoted most.

    Args:
        before: the model before the update.
        after: the model after it. Swap the two for what a deletion reveals.
        search: `Growth` (the default: seed and extend) or `Beams` (the paper's).
        score: of a token; smoothed log-ratio by default.
        null: a model that differs from `before` by chance alone, such as the same training
            with another seed, or the `null_chance` of one. The same search on (before, null)
            sets the threshold.
        top: findings kept at most.
        progress: told the work done and in all.

    Raises:
        ValueError: an argument is out of range.
        IncompatibleModels: the vocabularies differ.
    """
    _validate.positive(top=top)
    search, score = search or Growth(), score or token_score("smoothed")
    check_compatible(before, after)
    chance = (
        null
        if null is None or isinstance(null, Chance)
        else null_chance(before, null, search=search, score=score, progress=progress)
    )
    findings = _findings(ModelPair(before, after, score), search, top, progress)
    name = "seed-and-extend" if isinstance(search, Growth) else "beam"
    return UpdateDiff(findings=tuple(findings), search=name, score=score.name, chance=chance)


@torch.no_grad()
def null_chance(
    before: NextToken,
    null: NextToken,
    *,
    search: Growth | Beams | None = None,
    score: TokenScore | None = None,
    progress: Progress | None = None,
) -> Chance:
    """What a search reaches between two models that differ by chance alone.

    For more than one update of the same model: the arguments are those of `update_diff`.
    """
    search, score = search or Growth(), score or token_score("smoothed")
    check_compatible(before, null)
    if isinstance(search, Growth):
        # Chance makes short phrases: with them it sets a threshold, without them hardly any.
        search = replace(search, min_tokens=2)
    findings = _findings(ModelPair(before, null, score), search, None, progress)
    return Chance.of(finding.score for finding in findings if not finding.run)


def _findings(
    pair: ModelPair, search: Growth | Beams, top: int | None, progress: Progress | None
) -> list[Finding]:
    """Searched, near-copies folded within each group, best first."""
    if isinstance(search, Growth):
        end = pair.after.vocabulary.eos_id
        phrases = seed_and_extend(pair, growth=search, end=end, progress=progress)
        groups = [fold(phrases, rest=partial(untold, growth=search))]
    else:
        groups = [fold(_phrases(beam)) for beam in _beams(pair, search, progress)]
    found = [(*entry, number) for number, leaders in enumerate(groups) for entry in leaders]
    found.sort(key=lambda entry: (-rounded(entry[0].score), entry[0].tokens))
    vocabulary = pair.after.vocabulary
    return [
        Finding(
            tokens=phrase.tokens,
            pieces=tuple(vocabulary.piece(token) for token in phrase.tokens),
            phrase=vocabulary.decode(phrase.tokens),
            gains=phrase.gains,
            score=phrase.score,
            group=group if len(groups) > 1 else number,
            copies=copies,
            run=is_run(phrase.tokens),
        )
        for number, (phrase, copies, group) in enumerate(found[:top])
    ]


def _beams(pair: ModelPair, search: Beams, progress: Progress | None) -> list[Beam]:
    widths = search.widths(pair.vocab_size)
    if search.groups == 1:
        return [beam_search(pair, widths, progress=progress)]
    return group_beam_search(pair, widths, groups=search.groups, progress=progress)


def _phrases(beam: Beam) -> list[Phrase]:
    rows = zip(beam.tokens.tolist(), beam.gains.tolist(), beam.score.tolist(), strict=True)
    return [Phrase(tuple(tokens), tuple(gains), score) for tokens, gains, score in rows]
