"""Search for the phrases that an update promoted, wherever in a text they occur: seed and extend.

Samples, openings and pairs of tokens propose where phrases begin; one extension grows them, and one
folding ranks the result. Only the two snapshots are queried; no training data is read.

Differs from Zanella-Béguelin et al. (2020), arXiv:1912.07942: their beam starts at the beginning of
a text and competes over phrases of one length, where a secret that was promoted in many small steps
is lost.
"""

from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from vestige.audits.update.folding import Folded, agreed, fold
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text, cut, long_enough, sort_key, uncovered
from vestige.audits.update.plan import units_of
from vestige.audits.update.prompts import TEMPLATE, Prompt, beginning
from vestige.audits.update.proposals import propose, sources
from vestige.audits.update.repair import repaired, with_repairs
from vestige.audits.update.settings import Settings
from vestige.audits.update.units import OutOfTime, Run
from vestige.monitor import Step

LAX_PENALTY = 0.1  # token penalty of the less strict search for fragments
FRAGMENTS = 20  # fragments of the less strict search that are listed


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found; phrases with the number of their near-copies, best first.

    Attributes:
        phrases: cut, folded and repaired; those shorter than `min_tokens` last.
        fragments: what several samples agree on beyond the phrases; if there is neither, the best
            phrases of a less strict search.
        samples: promoted whole samples beyond both, by their mean log-ratio.
        read: every text that was generated, reported or not.
        texts: how many each proposal read.
        tokens: read by each model, in this and in earlier runs of the search.
        units, expected: done, and of a complete search.
    """

    phrases: Folded
    fragments: Folded
    samples: Folded
    read: Sequence[Text]
    texts: dict[str, int]
    tokens: tuple[int, int]
    units: int
    expected: int

    @property
    def complete(self) -> bool:
        """Whether all units are done."""
        return self.units == self.expected

    @property
    def null_scores(self) -> list[float]:
        """Scores of all phrases, if this is the search of a null model; best first."""
        return [phrase.score for phrase, _ in self.phrases if not phrase.is_run]


@torch.no_grad()
def search(
    pair: Pair,
    settings: Settings,
    prompts: Sequence[Prompt] = (),
    *,
    store: MutableMapping[str, Any] | None = None,
    until: Callable[[float], bool] = lambda _: False,
    progress: Step = lambda *_: None,
) -> Found:
    """Find the phrases that an update promoted most.

    Args:
        pair: the two snapshots and the score of a token.
        settings: what is proposed, and how phrases grow.
        prompts: where texts begin: a document's beginning first; that alone by default.
        store: results of units by name; new ones are added.
        until: called before each new unit with the seconds of the longest one of its kind; True
            ends the search.
        progress: called before and after each unit with (done, expected, activity).
    """
    starts = prompts or [beginning(pair)]
    run = Run(
        pair=pair.with_score(replace(pair.score, surprise=settings.surprise)),
        settings=settings,
        prompts=starts,
        store={} if store is None else store,
        until=until,
        progress=progress,
        expected=units_of(settings, pair, starts),
    )
    template = [Text(one.tokens, ()) for one in starts if one.name == TEMPLATE]  # no finding
    found, repairs, complete = Folded(), list[Text](), True
    try:
        propose(run)
        found = _folded(run, template)
        if settings.repaired:
            best = [phrase for phrase, _ in found if not phrase.is_run][: settings.repaired]
            repairs, _ = run.unit(
                "repair", "repairing", lambda: (repaired(run.pair, best, settings), [])
            )
            found = with_repairs(found, repairs, settings)
    except OutOfTime:
        found, complete = found or _folded(run, template), False
    listed = [*template, *long_enough((phrase for phrase, _ in found), settings)]
    agree = long_enough(agreed(run.texts, longest=settings.max_tokens), settings)
    fragments = fold(agree, already=listed)
    whole = (text.whole() for text in run.texts if text.log_ratios)
    promoted = long_enough((one for one in whole if one.score > 0), settings)
    counts = Counter(text.source for text in run.texts)
    return Found(
        phrases=sorted(found, key=lambda entry: sort_key(entry[0])),
        fragments=fragments,
        samples=fold(promoted, already=[*listed, *(one for one, _ in fragments)]),
        read=(*run.texts, *repairs, *(one for one, _ in fragments)),
        texts={name: counts[name] for name in sources(settings)},
        tokens=run.tokens,
        units=run.units,
        expected=run.units if complete else max(run.expected, run.units + 1),
    )


def search_update(
    pair: Pair,
    settings: Settings,
    prompts: Sequence[Prompt] = (),
    *,
    lax_store: MutableMapping[str, Any] | None = None,
    **how: Any,
) -> Found:
    """`search` for the update itself: without a phrase, a less strict search lists fragments.

    Null models need none, since fragments are not compared with them.
    """
    found = search(pair, settings, prompts, **how)
    phrases = long_enough((phrase for phrase, _ in found.phrases), settings)
    if found.fragments or not all(phrase.is_run for phrase in phrases):
        return found
    lax = replace(
        settings,
        sampling=None if settings.openings or settings.pairs else settings.sampling,
        token_penalty=min(LAX_PENALTY, settings.token_penalty),
        surprise=0.0,
        min_tokens=2,
    )
    more = search(pair, lax, prompts, **how | {"store": lax_store, "progress": lambda *_: None})
    return replace(
        found,
        fragments=more.phrases[:FRAGMENTS],
        read=(*found.read, *more.read),
        tokens=(found.tokens[0] + more.tokens[0], found.tokens[1] + more.tokens[1]),
    )


def _folded(run: Run, template: Iterable[Text]) -> Folded:
    """Distinct phrases of all texts, those shorter than `min_tokens` last.

    Chance makes short phrases, so null searches need them, and an update is searched by the same
    rule.
    """
    every = replace(run.settings, min_tokens=2)
    rest = partial(uncovered, settings=every)
    least = run.settings.min_tokens
    return fold(cut(run.texts, every), rest=rest, long=least, already=template)
