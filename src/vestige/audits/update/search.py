"""Search for the phrases that an update promoted, wherever in a text they occur: seed and extend.

Samples, openings and pairs of tokens propose where phrases begin; one extension grows them, and one
folding ranks the result. Only the two snapshots are queried; no training data is read.

Differs from Zanella-Béguelin et al. (2020), arXiv:1912.07942: their beam starts at the beginning of
a text and competes over phrases of one length, where a secret that was promoted in many small steps
is lost.
"""

from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
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
from vestige.audits.update.units import OutOfTime, SearchRun
from vestige.monitor import Step

LAX_PENALTY = 0.1  # token penalty of the less strict search for fragments
FRAGMENTS = 20  # fragments of the less strict search that are listed


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Phrases with the number of their near-copies, best first, and what was read.

    Attributes:
        phrases: cut, folded and repaired; those shorter than `min_tokens` last.
        fragments: shared by several samples and not in the phrases; if there are no phrases and
            no fragments, the best phrases of a less strict search.
        samples: other promoted samples, complete, by their mean log-ratio.
        generated: every text that was generated, reported or not.
        texts: number of texts that each proposal read.
        tokens: read by each model, in this and in earlier runs of the search.
        units: units of work done.
        expected: units of a complete search.
    """

    phrases: Folded
    fragments: Folded
    samples: Folded
    generated: Sequence[Text]
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
        """Scores of all phrases that do not only repeat themselves, best first."""
        return [phrase.score for phrase, _ in self.phrases if not phrase.is_repetitive]


@torch.no_grad()
def search(
    pair: Pair,
    settings: Settings,
    prompts: Sequence[Prompt] = (),
    *,
    store: MutableMapping[str, Any] | None = None,
    until: Callable[[float], bool] = lambda _: False,
    progress: Step = lambda *_: None,
) -> SearchResult:
    """Find the phrases that an update promoted most.

    Args:
        pair: the two snapshots and the score of a token.
        settings: what is proposed, and how phrases grow.
        prompts: where texts begin, a document's beginning first; the default is only that.
        store: results of units by name; new ones are added.
        until: called before each new unit with the seconds of the longest one of its kind; True
            ends the search.
        progress: called before and after each unit with (done, expected, activity).
    """
    prompts = prompts or [beginning(pair)]
    run = SearchRun(
        pair=pair.with_score(replace(pair.score, surprise=settings.surprise)),
        settings=settings,
        prompts=prompts,
        store={} if store is None else store,
        until=until,
        progress=progress,
        expected_units=units_of(settings, pair, prompts),
    )
    # the chat template itself is no finding
    template = [Text(prompt.tokens, ()) for prompt in prompts if prompt.name == TEMPLATE]
    phrases, repairs, complete = Folded(), list[Text](), True
    try:
        propose(run)
        phrases = _phrases_of(run, template)
        if settings.repaired:
            best = [phrase for phrase, _ in phrases if not phrase.is_repetitive]
            work = partial(repaired, run.pair, best[: settings.repaired], settings)
            repairs, _ = run.unit("repair", "repairing", lambda: (work(), []))
            phrases = with_repairs(phrases, repairs, settings)
    except OutOfTime:
        phrases, complete = phrases or _phrases_of(run, template), False
    listed = [*template, *long_enough((phrase for phrase, _ in phrases), settings)]
    shared = long_enough(agreed(run.texts, longest=settings.max_tokens), settings)
    fragments = fold(shared, already=listed)
    listed += [fragment for fragment, _ in fragments]
    samples = (text.as_phrase() for text in run.texts if text.log_ratios)
    promoted = long_enough((sample for sample in samples if sample.score > 0), settings)
    counts = Counter(text.source for text in run.texts)
    return SearchResult(
        phrases=sorted(phrases, key=lambda entry: sort_key(entry[0])),
        fragments=fragments,
        samples=fold(promoted, already=listed),
        generated=(*run.texts, *repairs, *(fragment for fragment, _ in fragments)),
        texts={name: counts[name] for name in sources(settings)},
        tokens=run.tokens,
        units=run.units,
        expected=run.units if complete else max(run.expected_units, run.units + 1),
    )


def search_update(
    pair: Pair,
    settings: Settings,
    prompts: Sequence[Prompt] = (),
    *,
    lax_store: MutableMapping[str, Any] | None = None,
    **options: Any,
) -> SearchResult:
    """`search` for the update itself: if it finds no phrase, a less strict search lists fragments.

    Null models need none, because fragments are not compared with them.
    """
    result = search(pair, settings, prompts, **options)
    phrases = long_enough((phrase for phrase, _ in result.phrases), settings)
    if result.fragments or not all(phrase.is_repetitive for phrase in phrases):
        return result
    lax_settings = replace(
        settings,
        sampling=None if settings.openings or settings.pairs else settings.sampling,
        token_penalty=min(LAX_PENALTY, settings.token_penalty),
        surprise=0.0,
        min_tokens=2,
    )
    options |= {"store": lax_store, "progress": lambda *_: None}
    lax = search(pair, lax_settings, prompts, **options)
    return replace(
        result,
        fragments=lax.phrases[:FRAGMENTS],
        generated=(*result.generated, *lax.generated),
        tokens=(result.tokens[0] + lax.tokens[0], result.tokens[1] + lax.tokens[1]),
    )


def _phrases_of(run: SearchRun, template: Sequence[Text]) -> Folded:
    """Distinct phrases of all texts, those shorter than `min_tokens` last.

    Short phrases occur by coincidence, so null searches need them, and an update is searched by
    the same rule.
    """
    settings = replace(run.settings, min_tokens=2)
    return fold(
        cut(run.texts, settings),
        rest=partial(uncovered, settings=settings),
        long=run.settings.min_tokens,
        already=template,
    )
