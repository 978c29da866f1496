r"""Phrases that an update promoted, from the two snapshots alone.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", CCS, arXiv:1912.07942. Both snapshots are queried; no training data is seen.

Differs from the paper: seed and extend is the default search and the smoothed log-ratio the
default score (see `seed_and_extend` and `token_scores` for why); near-copies are folded; and
null models, made as the update was from clean text, set what counts as found (see `chance`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from vestige import _validate
from vestige.attacks.update.beam_search import (
    Beam,
    Progress,
    beam_search,
    group_beam_search,
    halving_widths,
)
from vestige.attacks.update.diff_result import Finding, UpdateDiff
from vestige.attacks.update.known_phrases import Asked, KnownPhrase, known_phrases
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.near_copies import fold, is_run
from vestige.attacks.update.null_searches import NullScores
from vestige.attacks.update.phrases import Phrase, ScoredText
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import (
    WHOLE,
    Effort,
    Found,
    SeedAndExtend,
    seed_and_extend,
)
from vestige.attacks.update.token_scores import TokenScore, token_score
from vestige.attacks.update.verbatim import Generated, verbatim
from vestige.claims.model_checks import pair_checks
from vestige.data.vocabulary import Vocabulary
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


LAX_TOLL = 0.1
"""What a token costs where a search with the toll asked for finds no phrase."""

FRAGMENTS = 20
"""Fragments that a laxer search keeps, where there is no phrase."""


@torch.no_grad()
def update_diff(
    before: NextToken,
    after: NextToken,
    *,
    search: SeedAndExtend | Beams | None = None,
    score: TokenScore | None = None,
    nulls: Sequence[NextToken] | NullScores = (),
    listed: Sequence[Asked] = (),
    top: int = 1000,
    effort: Effort = WHOLE,
) -> UpdateDiff:
    r"""Search for the phrases that an update promoted most.

    Args:
        before: the model before the update.
        after: the model after it. Swap the two for what a deletion reveals.
        search: `SeedAndExtend` (the default: samples, openings and what extends them) or `Beams`
            (the paper's).
        score: of a token; smoothed log-ratio by default.
        nulls: models made as `after` was, from clean text: `before` continued on as much of it,
            each on another text and from another seed; or the `null_scores` of such. 19 give a
            verdict, fewer say how many of them reached a score.
        listed: secrets, each scored by itself and looked for in all that the search generates.
        top: findings kept at most, fragments among them.
        effort: how far to go, behind which prompts, and what is kept of an earlier search. Beams
            know its progress alone.

    Raises:
        ValueError: an argument is out of range.
        IncompatibleModels: the vocabularies differ.
    """
    _validate.positive(top=top)
    search, score = search or SeedAndExtend(), score or token_score("smoothed")
    check_compatible(before, after)
    scores = nulls if isinstance(nulls, NullScores) else None
    if nulls and not isinstance(nulls, NullScores):
        each = replace(effort, kept=None, until=None)
        scores = null_scores(before, nulls, search=search, score=score, effort=each)
    pair, words = ModelPair(before, after, score), after.vocabulary
    checks = pair_checks(before, after, seed=0)
    found = _search(pair, search, effort)
    findings, searched = _findings(found.phrases, search, words, found.groups), found.searched
    fragments, rest = found.fragments, _findings(found.texts, search, words)
    none = all(finding.run for finding in findings) and not fragments
    read, per_token = found.read, score.bound - getattr(search, "toll", 0.0)
    if isinstance(search, SeedAndExtend) and none:
        search = _laxer(search)
        more = _search(pair, search, replace(effort.of("lax"), progress=None))
        fragments, read = more.phrases[:FRAGMENTS], (*read, *more.read)
        searched = searched and more.searched and searched.beside(more.searched)
    rest = [one for one in (*_findings(fragments, search, words), *rest) if not one.run]
    return UpdateDiff(
        findings=tuple(findings[:top]),
        search="seed-and-extend" if isinstance(search, SeedAndExtend) else "beam",
        score=score.name,
        nulls=scores,
        fragments=tuple(rest[: max(0, top - len(findings))]),
        searched=searched,
        places=dict(effort.contexts),
        known=_known(pair, listed, Generated.of(read, words), effort) if listed else (),
        nulls_asked=0 if scores is None else len(scores),
        most_per_token=per_token if 0 < per_token < math.inf else None,
        checks=checks,
    )


def _known(
    pair: ModelPair, listed: Sequence[Asked], search: Generated, effort: Effort
) -> tuple[KnownPhrase, ...]:
    """The score of each listed secret, and what it proves that the search generated it."""
    prompts = [pair.after.vocabulary.decode(ids) for ids in effort.contexts]
    scored = known_phrases(pair, listed, contexts=effort.contexts)
    proofs = verbatim(pair.before, listed, search, given=prompts, seed=0)
    return tuple(
        replace(one, number=asked.number, texts=texts, direct=direct)
        for one, asked, (texts, direct) in zip(scored, listed, proofs, strict=True)
    )


def _laxer(search: SeedAndExtend) -> SeedAndExtend:
    """A search for fragments; samples have shown theirs."""
    others = tuple(one for one in search.proposals if one.name != Samples.name)
    toll, others = min(LAX_TOLL, search.toll), others or search.proposals
    return replace(search, proposals=others, toll=toll, surprise=0.0, min_tokens=2)


@torch.no_grad()
def null_scores(
    before: NextToken,
    nulls: Iterable[NextToken],
    *,
    search: SeedAndExtend | Beams | None = None,
    score: TokenScore | None = None,
    effort: Effort = WHOLE,
) -> NullScores:
    """What searches reach where there is nothing to find.

    For more than one update of the same model, and for models too large to hold together: each
    of `nulls` is searched before the next is asked for. The arguments are those of `update_diff`;
    units are kept under the null's number. A search that is stopped does not count, nor does
    anything after it.

    Raises:
        ValueError: no null model was searched to the end, or an argument is out of range.
        IncompatibleModels: the vocabularies differ.
    """
    searches = []
    for number, null in enumerate(nulls):
        own = effort.of(f"{number}")
        found = null_search(before, null, search=search, score=score, effort=own)
        if found is None:
            break
        searches.append(found)
    return NullScores.of(searches)


@torch.no_grad()
def null_search(
    before: NextToken,
    null: NextToken,
    *,
    search: SeedAndExtend | Beams | None = None,
    score: TokenScore | None = None,
    effort: Effort = WHOLE,
) -> list[float] | None:
    """The scores of all phrases of one null search, best first; None where it was stopped."""
    search, score = search or SeedAndExtend(), score or token_score("smoothed")
    check_compatible(before, null)
    found = _search(ModelPair(before, null, score), search, effort)
    if found.searched is not None and not found.searched.complete:
        return None
    return [phrase.score for phrase, _ in found.phrases if not is_run(phrase.tokens)]


def _search(pair: ModelPair, search: SeedAndExtend | Beams, effort: Effort) -> Found:
    """All that a search finds, best first, too short to keep or not."""
    if not isinstance(search, Beams):
        found = seed_and_extend(pair, search, end=pair.after.vocabulary.eos_id, effort=effort)
        return replace(found, phrases=sorted(found.phrases, key=_best_first))
    beams = [fold(_phrases(beam)) for beam in _beams(pair, search, effort.progress)]
    ranked = [entry for leaders in beams for entry in leaders]
    groups = {one.tokens: number for number, leaders in enumerate(beams) for one, _ in leaders}
    return Found(
        phrases=sorted(ranked, key=_best_first),
        read=tuple(ScoredText(one.tokens, one.gains) for one, _ in ranked),
        groups=groups if search.groups > 1 else {},
    )


def _best_first(found: tuple[Phrase, int]) -> tuple[float, tuple[int, ...]]:
    return -rounded(found[0].score), found[0].tokens


def _findings(
    found: Iterable[tuple[Phrase, int]],
    search: SeedAndExtend | Beams,
    vocabulary: Vocabulary,
    groups: Mapping[tuple[int, ...], int] = {},
) -> list[Finding]:
    """What is long enough to report of what was found, with its text."""
    least = search.min_tokens if isinstance(search, SeedAndExtend) else 1
    kept = [entry for entry in found if len(entry[0].tokens) >= least]
    return [
        Finding(
            tokens=phrase.tokens,
            pieces=tuple(vocabulary.piece(token) for token in phrase.tokens),
            phrase=vocabulary.decode(phrase.tokens),
            gains=phrase.gains,
            score=phrase.score,
            group=groups.get(phrase.tokens, number),
            copies=copies,
            run=is_run(phrase.tokens),
            proposal=phrase.proposal,
            context=phrase.context,
            lead=phrase.lead,
            lead_text=vocabulary.decode(phrase.lead).rpartition("\n")[2] if phrase.lead else "",
        )
        for number, (phrase, copies) in enumerate(kept)
    ]


def _beams(pair: ModelPair, search: Beams, progress: Progress | None) -> list[Beam]:
    widths = search.widths(pair.vocab_size)
    if search.groups == 1:
        return [beam_search(pair, widths, progress=progress)]
    return group_beam_search(pair, widths, groups=search.groups, progress=progress)


def _phrases(beam: Beam) -> list[Phrase]:
    rows = zip(beam.tokens.tolist(), beam.gains.tolist(), beam.score.tolist(), strict=True)
    return [Phrase(tuple(tokens), tuple(gains), score) for tokens, gains, score in rows]
