"""The intent-and-slot corpora that models learn, by name, and random parts of them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.texts import corpora
from vestige import _validate
from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance, Utterances

FOLDERS = {"snips": "snips/slotgated", "atis": "atis", "nlu-evaluation": "nlu_eval/utterances.csv"}
HELD_OUT = 0.1
"""Share of a corpus without parts for validation, and as much again for the test."""


@dataclass(frozen=True, kw_only=True)
class UtteranceText:
    """Which utterances, and how many of them.

    Attributes:
        dataset: "snips", "atis", "nlu-evaluation", or "orders", which is generated for tests.
        training: number of utterances, sampled; None: all.
        validation: likewise.
    """

    dataset: str
    training: int | None = None
    validation: int | None = None

    @property
    def amount(self) -> int | str:
        """Training utterances, for captions."""
        return self.training or "all"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """An `UtteranceText`, read: training, validation and test utterances."""

    training: Utterances
    validation: Utterances
    test: Utterances


def read_parts(text: UtteranceText, data: Path | None) -> Parts:
    """Read and sample, with seed 0."""
    _validate.one_of(("orders", *FOLDERS), dataset=text.dataset)
    parts = _complete_parts(text.dataset, data)
    return Parts(
        training=_sample(parts.training, text.training),
        validation=_sample(parts.validation, text.validation),
        test=parts.test,
    )


def orders(number: int, *, seed: int) -> Utterances:
    """Generated utterances of three intents, for tests that have no corpus."""
    rng = np.random.default_rng(seed)
    towns = ("oslo", "lima", "cairo", "new york", "quito", "bern")
    styles = ("jazz", "rock", "folk", "hip hop", "opera")
    times = ("today", "tomorrow", "at 7", "at 9", "next week")
    utterances = []
    for _ in range(number):
        town, style, time = (str(rng.choice(words)) for words in (towns, styles, times))
        templates = (
            ("GetWeather", ("will it rain in", ""), (town, "town"), (time, "time")),
            ("PlayMusic", ("play some", ""), (style, "style"), (time, "time")),
            ("BookTable", ("a table in", "please"), (town, "town"), (time, "time")),
        )
        utterances.append(_utterance(*templates[int(rng.integers(3))]))
    return Utterances.of(utterances)


def _utterance(
    intent: str, frame: tuple[str, str], first: tuple[str, str], second: tuple[str, str]
) -> Utterance:
    words, tags = frame[0].split(), ["O"] * len(frame[0].split())
    for text, slot in (first, second):
        words += text.split()
        tags += [f"B-{slot}", *[f"I-{slot}"] * (len(text.split()) - 1)]
    end = frame[1].split()
    return Utterance((*words, *end), (*tags, *["O"] * len(end)), intent)


def _complete_parts(dataset: str, data: Path | None) -> Parts:
    if dataset == "orders":
        training, validation, test = (orders(n, seed=i) for i, n in enumerate((300, 60, 60)))
        return Parts(training=training, validation=validation, test=test)
    folder = corpora(data, dataset, "snips, atis and nlu_eval")
    splits = read_utterances(folder / FOLDERS[dataset])
    if splits.validation is not None and splits.test is not None:
        return Parts(training=splits.train, validation=splits.validation, test=splits.test)
    rest, test = splits.train.split(HELD_OUT, seed=0)
    training, validation = rest.split(HELD_OUT, seed=1)
    return Parts(training=training, validation=validation, test=test)


def _sample(part: Utterances, number: int | None) -> Utterances:
    if number is None or number >= len(part):
        return part
    return part.take(np.sort(np.random.default_rng(0).permutation(len(part))[:number]))
