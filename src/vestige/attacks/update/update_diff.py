r"""Phrases that an update promoted, from the two snapshots alone.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", CCS, arXiv:1912.07942. Both snapshots are queried; no training data is seen.

Differs from the paper: seed and extend is the default search and the smoothed log-ratio the
default score (see `seed_and_extend` and `token_scores` for why); near-copies are folded; and
null models, made as the update was from clean text, set what counts as found (see `chance`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from vestige import _validate
from vestige.attacks.update.beam_search import (
    Beam,
    Progress,
    beam_search,
    group_beam_search,
    halving_widths,
)
from vestige.attacks.update.known_phrases import BEGINNING, KnownPhrase
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.near_copies import fold, is_run
from vestige.attacks.update.null_searches import NullScores, compared_with_nulls, verdict_of
from vestige.attacks.update.phrases import Phrase
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import (
    WHOLE,
    Effort,
    Searched,
    SeedAndExtend,
    seed_and_extend,
)
from vestige.attacks.update.token_scores import TokenScore, token_score
from vestige.data.vocabulary import Vocabulary
from vestige.models.checkpoints import check_compatible
from vestige.models.largest import rounded
from vestige.models.protocols import NextToken
from vestige.result import Result


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
        proposal: name of what proposed its beginning; empty of a beam.
        context: ids of the prompt that it was found behind; none at a document's beginning, in a
            sample or behind a single token.
        lead: ids that were read before it, the last ones; the update promoted them less.
        lead_text: their text, the last line of it.
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    phrase: str
    gains: tuple[float, ...]
    score: float
    group: int
    copies: int
    run: bool
    proposal: str = ""
    context: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()
    lead_text: str = ""


LAX_TOLL = 0.1
"""What a token costs where a search with the toll asked for finds no phrase."""

FRAGMENTS = 20
"""Fragments that a laxer search keeps, where there is no phrase."""


@dataclass(frozen=True, kw_only=True)
class UpdateDiff(Result):
    """The phrases that an update promoted most, best first.

    Attributes:
        findings: near-copies folded, best first.
        search: "seed-and-extend" or "beam".
        score: name of the token score.
        nulls: the scores that null searches reached, or None without one.
        fragments: what several samples agree on beside the phrases, or where there is neither, the
            best of a laxer search; then whole samples. Their scores compare with nothing.
        searched: what it read for that; None of beams.
        places: names of the prompts that it began behind, by their ids.
        known: phrases that were asked for by themselves.
        nulls_asked: null models that were given; those beyond `nulls` were not searched to the end.
    """

    findings: tuple[Finding, ...]
    search: str
    score: str
    nulls: NullScores | None
    fragments: tuple[Finding, ...] = ()
    searched: Searched | None = None
    places: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    known: tuple[KnownPhrase, ...] = ()
    nulls_asked: int = 0

    @property
    def threshold(self) -> float | None:
        """The score that a found phrase exceeds; None with fewer nulls than it takes to say."""
        return None if self.nulls is None else self.nulls.threshold

    def found(self, finding: Finding) -> bool | None:
        """Whether chance hardly gives such a score; None with fewer nulls than it takes to say."""
        return None if self.nulls is None else self.nulls.found(finding.score)

    @property
    def complete(self) -> bool | None:
        """Whether update and nulls were searched to the end; None of beams, which always are."""
        if self.searched is None:
            return None
        done = 0 if self.nulls is None else len(self.nulls)
        return self.searched.complete and done >= self.nulls_asked

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        phrases = [finding for finding in self.findings if not finding.run]
        nulls, top = self.nulls, phrases[0].score if phrases else None
        compared = compared_with_nulls(0.0 if top is None else top, None if top is None else nulls)
        found = None if self.threshold is None else sum(bool(self.found(f)) for f in phrases)
        return {
            "verdict": verdict_of(found),
            "search": self.search,
            "score": self.score,
            "phrases": len(phrases),
            "runs": len(self.findings) - len(phrases),
            "fragments": len(self.fragments),
            "found": found,
            "threshold": self.threshold,
            "null_searches": 0 if nulls is None else len(nulls),
            "null_top_score": None if nulls is None else nulls.best,
            "top_score": top,
            "top_e_value": compared["e_value"],
            "top_reached_by": compared["reached_by"],
            "forward_tokens": None if self.searched is None else self.searched.forward_tokens,
            "units_done": None if self.searched is None else self.searched.done,
            "units": None if self.searched is None else self.searched.units,
            "texts": None if self.searched is None else dict(self.searched.texts),
            "places": [BEGINNING, *self.places.values()],
            "complete": self.complete,
            "nulls_asked": self.nulls_asked,
            "known": len(self.known),
            "known_told": sum(known.part == 1 for known in self.known),
            "known_beyond": None if nulls is None else sum(not k.reached for k in self.known),
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a finding; `pandas.DataFrame(result.rows())` is the frame."""
        for rank, finding in enumerate((*self.findings, *self.fragments)):
            fragment = rank >= len(self.findings)
            yield {
                "rank": rank,
                "score": finding.score,
                "phrase": finding.phrase,
                "lead": finding.lead_text,
                "tokens": list(finding.tokens),
                "group": finding.group,
                "pieces": list(finding.pieces),
                "token_scores": list(finding.gains),
                "copies": finding.copies,
                "kind": "fragment" if fragment else "run" if finding.run else "phrase",
                "proposal": finding.proposal,
                "place": self.places.get(finding.context, "a prompt" if finding.context else ""),
                **compared_with_nulls(finding.score, None if fragment else self.nulls),
                **dict.fromkeys(("p_value", "known_in", "known_part")),
            }
        after = len(self.findings) + len(self.fragments)
        yield from (known.row(after + number) for number, known in enumerate(self.known))


@torch.no_grad()
def update_diff(
    before: NextToken,
    after: NextToken,
    *,
    search: SeedAndExtend | Beams | None = None,
    score: TokenScore | None = None,
    nulls: Sequence[NextToken] | NullScores = (),
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
            each on another text and from another seed; or the `null_scores` of such. 19 carry
            the verdict "found", fewer say how many of them reached a score.
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
    found = _search(pair, search, effort)
    findings, searched = _findings(found.phrases, search, words), found.searched
    fragments, rest = found.fragments, _findings(found.texts, search, words)
    none = all(finding.run for finding in findings) and not fragments
    if isinstance(search, SeedAndExtend) and none:
        search = _laxer(search)
        more = _search(pair, search, effort.of("lax"))
        fragments = more.phrases[:FRAGMENTS]
        searched = searched and more.searched and searched.beside(more.searched)
    rest = [one for one in (*_findings(fragments, search, words), *rest) if not one.run]
    return UpdateDiff(
        findings=tuple(findings[:top]),
        search="seed-and-extend" if isinstance(search, SeedAndExtend) else "beam",
        score=score.name,
        nulls=scores,
        fragments=tuple(rest[: max(0, top - len(findings))]),
        searched=searched,
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
    return [phrase.score for phrase, *_ in found.phrases if not is_run(phrase.tokens)]


@dataclass(frozen=True)
class _Found:
    """What a search gave: (phrase, near-copies folded in, group), best first."""

    phrases: list[tuple[Phrase, int, int]]
    fragments: list[tuple[Phrase, int, int]] = field(default_factory=list)
    texts: list[tuple[Phrase, int, int]] = field(default_factory=list)
    searched: Searched | None = None


def _search(pair: ModelPair, search: SeedAndExtend | Beams, effort: Effort) -> _Found:
    """All that a search finds, too short to keep or not."""
    if isinstance(search, Beams):
        groups = [fold(_phrases(beam)) for beam in _beams(pair, search, effort.progress)]
        ranked = [(*entry, number) for number, leaders in enumerate(groups) for entry in leaders]
        return _Found(_sorted(ranked))
    end = pair.after.vocabulary.eos_id
    found = seed_and_extend(pair, search, end=end, effort=effort)
    phrases, fragments, texts = (
        [(phrase, copies, 0) for phrase, copies in part]
        for part in (found.phrases, found.fragments, found.texts)
    )
    return _Found(_sorted(phrases), fragments, texts, found.searched)


def _sorted(found: list[tuple[Phrase, int, int]]) -> list[tuple[Phrase, int, int]]:
    return sorted(found, key=lambda entry: (-rounded(entry[0].score), entry[0].tokens))


def _findings(
    found: Iterable[tuple[Phrase, int, int]], search: SeedAndExtend | Beams, vocabulary: Vocabulary
) -> list[Finding]:
    """What is long enough to report of what was found, with its text."""
    least = search.min_tokens if isinstance(search, SeedAndExtend) else 1
    kept = [entry for entry in found if len(entry[0].tokens) >= least]
    grouped = isinstance(search, Beams) and search.groups > 1
    return [
        Finding(
            tokens=phrase.tokens,
            pieces=tuple(vocabulary.piece(token) for token in phrase.tokens),
            phrase=vocabulary.decode(phrase.tokens),
            gains=phrase.gains,
            score=phrase.score,
            group=group if grouped else number,
            copies=copies,
            run=is_run(phrase.tokens),
            proposal=phrase.proposal,
            context=phrase.context,
            lead=phrase.lead,
            lead_text=vocabulary.decode(phrase.lead).rpartition("\n")[2] if phrase.lead else "",
        )
        for number, (phrase, copies, group) in enumerate(kept)
    ]


def _beams(pair: ModelPair, search: Beams, progress: Progress | None) -> list[Beam]:
    widths = search.widths(pair.vocab_size)
    if search.groups == 1:
        return [beam_search(pair, widths, progress=progress)]
    return group_beam_search(pair, widths, groups=search.groups, progress=progress)


def _phrases(beam: Beam) -> list[Phrase]:
    rows = zip(beam.tokens.tolist(), beam.gains.tolist(), beam.score.tolist(), strict=True)
    return [Phrase(tuple(tokens), tuple(gains), score) for tokens, gains, score in rows]
