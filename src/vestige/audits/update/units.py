"""The work of a search in units: bounded, named, and stored when they are done.

A unit is determined by the settings and by the units before it. Its random numbers depend on the
seed and its name, so a search that was interrupted resumes to the same phrases, to the bit.
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

Outcome = tuple[list[Text], list[Seed]]
"""Texts that a unit read, and seeds for later units."""


class OutOfTime(Exception):
    """The next unit is not begun."""


@dataclass
class Run:
    """A search in progress; see `search.search`.

    Attributes:
        expected: units of the whole search.
        texts: all that were read.
        explored: neighbouring tokens of all phrases so far.
        units: that are done.
        tokens: read by each model.
    """

    pair: Pair
    settings: Settings
    prompts: Sequence[Prompt]
    store: MutableMapping[str, Any]
    until: Callable[[float], bool]
    progress: Step
    expected: int
    texts: list[Text] = field(default_factory=list)
    explored: set[tuple[int, int]] = field(default_factory=set)
    units: int = 0
    tokens: tuple[int, int] = (0, 0)
    _seconds: dict[str, float] = field(default_factory=dict)

    def unit(self, key: str, activity: str, work: Callable[[], Outcome]) -> Outcome:
        """The result of a unit: stored, or computed and stored.

        Raises:
            OutOfTime: it is not stored, and the time is over.
        """
        stored = self.store.get(key)
        if stored is None:
            if self.until(self._seconds.get(activity, 0.0)):
                raise OutOfTime
            self._show(activity)
            read, began = self.pair.tokens_read, time.monotonic()
            texts, seeds = work()
            seconds = time.monotonic() - began
            self._seconds[activity] = max(seconds, self._seconds.get(activity, 0.0))
            cost = [now - then for now, then in zip(self.pair.tokens_read, read, strict=True)]
            stored = {"texts": _plain(texts), "seeds": _plain(seeds), "forward_tokens": cost}
            self.store[key] = stored
        before, after = stored["forward_tokens"]
        self.tokens = self.tokens[0] + before, self.tokens[1] + after
        self.units += 1
        self._show(activity)
        return _restored(Text, stored["texts"]), _restored(Seed, stored["seeds"])

    def read(self, key: str, activity: str, work: Callable[[], Outcome]) -> Outcome:
        """A unit whose texts belong to the search; their pairs of tokens are explored then."""
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
        """Grow at most `planned` seeds in blocks, except pairs that a phrase has explored.

        The key begins with the source of the seeds.
        """
        prompts = {prompt.shown_tokens for prompt in self.prompts}
        source, how = key.partition("/")[0], settings or self.settings

        def work(block: Sequence[Seed]) -> Outcome:
            fresh = [seed for seed in block if seed.pair not in self.explored]
            return [
                replace(text, source=source, prompt=seed.context if seed.context in prompts else ())
                for seed, text in grow(self.pair, fresh, how, beam=beam)
            ], []

        for number, first in enumerate(range(0, planned, BLOCK)):
            block = seeds[first : first + BLOCK]
            self.read(f"{key}/{number}", "extending", partial(work, block))

    def generator(self, key: str) -> torch.Generator:
        """Random numbers of one unit, independent of all others."""
        digest = hashlib.sha256(f"{self.settings.seed} {key}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def _show(self, activity: str) -> None:
        self.progress(self.units, max(self.units, self.expected), activity)


def _plain(items: Sequence[Seed | Text]) -> list[list[Any]]:
    """Values as JSON holds them: the fields of each in order."""
    return [[getattr(one, name) for name in type(one).__dataclass_fields__] for one in items]


def _restored(kind: type[T], rows: Sequence[Sequence[Any]]) -> list[T]:
    return [kind(*(tuple(v) if isinstance(v, list) else v for v in row)) for row in rows]
