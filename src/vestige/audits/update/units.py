"""The work of a search in units: bounded, named, and stored when they are done.

A unit is determined by the settings and by the units before it. Its random numbers depend on the
seed and its name, so a search that was interrupted resumes to the same phrases, bit by bit.
"""

import hashlib
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch

from vestige.audits.update.growth import Seed, grow
from vestige.audits.update.pair import BLOCK, Pair
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.settings import Settings
from vestige.monitor import Step

T = TypeVar("T")

UnitResult = tuple[list[Text], list[Seed]]
"""Texts that a unit read, and seeds for later units."""


class OutOfTime(Exception):
    """The time is over before the next unit."""


@dataclass
class SearchRun:
    """A search in progress; see `search.search`.

    Attributes:
        expected_units: units of the whole search.
        texts: all texts read so far.
        explored: neighbouring tokens of all phrases so far.
        units: units done.
        tokens: tokens read by each model.
    """

    pair: Pair
    settings: Settings
    prompts: Sequence[Prompt]
    store: MutableMapping[str, Any]
    until: Callable[[float], bool]
    progress: Step
    expected_units: int
    texts: list[Text] = field(default_factory=list)
    explored: set[tuple[int, int]] = field(default_factory=set)
    units: int = 0
    tokens: tuple[int, int] = (0, 0)
    _longest_seconds: dict[str, float] = field(default_factory=dict)

    def unit(self, key: str, activity: str, work: Callable[[], UnitResult]) -> UnitResult:
        """The stored result of a unit, or that of `work`, which is then stored.

        Raises:
            OutOfTime: it is not stored, and the time is over.
        """
        stored = self.store.get(key)
        if stored is None:
            longest = self._longest_seconds.get(activity, 0.0)
            if self.until(longest):
                raise OutOfTime
            self._show(activity)
            tokens, started = self.pair.tokens_read, time.monotonic()
            texts, seeds = work()
            seconds = time.monotonic() - started
            self._longest_seconds[activity] = max(seconds, longest)
            cost = [now - then for now, then in zip(self.pair.tokens_read, tokens, strict=True)]
            stored = {"texts": _plain(texts), "seeds": _plain(seeds), "forward_tokens": cost}
            self.store[key] = stored
        before, after = stored["forward_tokens"]
        self.tokens = self.tokens[0] + before, self.tokens[1] + after
        self.units += 1
        self._show(activity)
        return _restored(Text, stored["texts"]), _restored(Seed, stored["seeds"])

    def collect(self, key: str, activity: str, work: Callable[[], UnitResult]) -> UnitResult:
        """The result of a unit; its texts and their pairs of tokens are added to the search."""
        texts, seeds = self.unit(key, activity, work)
        self.texts += texts
        for text in texts:
            for phrase in text.cut(self.settings):
                self.explored.update(pairwise(phrase.phrase))
        return texts, seeds

    def grow(
        self,
        key: str,
        seeds: Sequence[Seed],
        planned: int,
        *,
        settings: Settings | None = None,
        beam: int = 1,
    ) -> None:
        """Grow the first `planned` seeds in blocks, except pairs that a phrase has explored.

        The key begins with the source of the seeds.
        """
        prompts = {prompt.shown_tokens for prompt in self.prompts}
        source = key.partition("/")[0]

        def work(block: Sequence[Seed]) -> UnitResult:
            fresh = [seed for seed in block if seed.pair not in self.explored]
            return [
                replace(text, source=source, prompt=seed.context if seed.context in prompts else ())
                for seed, text in grow(self.pair, fresh, settings or self.settings, beam=beam)
            ], []

        for number, first in enumerate(range(0, planned, BLOCK)):
            block = seeds[first : first + BLOCK]
            self.collect(f"{key}/{number}", "extending", partial(work, block))

    def generator(self, key: str) -> torch.Generator:
        """Random numbers of one unit, independent of all others."""
        digest = hashlib.sha256(f"{self.settings.seed} {key}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def _show(self, activity: str) -> None:
        self.progress(self.units, max(self.units, self.expected_units), activity)


def _plain(items: Sequence[Seed | Text]) -> list[list[Any]]:
    """The fields of each item in order, for JSON."""
    return [[getattr(item, name) for name in type(item).__dataclass_fields__] for item in items]


def _restored(kind: type[T], rows: Sequence[Sequence[Any]]) -> list[T]:
    return [kind(*(tuple(v) if isinstance(v, list) else v for v in row)) for row in rows]
