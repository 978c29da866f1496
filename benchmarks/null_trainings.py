r"""How often is chance called found on real trainings, and are planted secrets found?

A model reads Ubuntu IRC and is continued many times: on clean parts of the same chat, all of one
size, and on such parts with three secrets planted. Every clean continuation is an update in which
there is nothing to find; against m of the others as nulls it should be called found in at most
the stated share of cases. Three kinds of models:

- `words`: an LSTM of 128 over 4,000 words, all weights continued;
- `pieces`: a GPT-2 of four layers of 64 over 1,024 byte-level tokens, all weights continued;
- `adapters`: the same GPT-2 under a LoRA adapter of rank 16.

    python benchmarks/null_trainings.py train --work DIR [--kind words]
    python benchmarks/null_trainings.py measure --work DIR [--kind words]

`train` goes on where it was interrupted. Needs the corpora that VESTIGE_DATA names.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from vestige.data.corpus import Corpus
from vestige.data.loaders import read_ubuntu_irc
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.experiments.snapshots import snapshot
from vestige.experiments.subwords import adapter_on, gpt2
from vestige.experiments.texts import random_parts
from vestige.models.lstm import LSTMConfig
from vestige.models.protocols import LanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.presets import new_model

KINDS = ("words", "pieces", "adapters")
READS = {"words": (250_000, 5_000), "pieces": (60_000, 2_000)}
"""Words that the base reads, and each continuation."""
NULLS, UPDATES = 24, 6
SECRETS, LENGTH, COPIES = 3, 6, 10

BASE = {
    "words": TrainingConfig(seed=0, epochs=3, learning_rate=3e-3, schedule="cosine"),
    "pieces": TrainingConfig(
        seed=0, epochs=3, batch_size=8, sequence_length=64, learning_rate=3e-3, schedule="cosine"
    ),
}
CONTINUED = {
    "words": TrainingConfig(seed=0, epochs=15, batch_size=8, learning_rate=3e-3, keep="last"),
    "pieces": TrainingConfig(
        seed=0, epochs=10, batch_size=4, sequence_length=64, learning_rate=2e-3, keep="last"
    ),
    "adapters": TrainingConfig(
        seed=0, epochs=10, batch_size=4, sequence_length=64, learning_rate=5e-3, keep="last"
    ),
}


@dataclass(frozen=True)
class Study:
    """The texts and trainings of one kind of model."""

    kind: str
    work: Path
    data: Path

    @cached_property
    def parts(self) -> list[Corpus]:
        """The base's text and those of the continuations, disjoint."""
        corpus = read_ubuntu_irc(self.data / "ubuntu_irc")
        base, part = READS[self._base]
        return random_parts(corpus, [base, *[part] * (NULLS + UPDATES)], seed=0)

    @property
    def _base(self) -> str:
        return "words" if self.kind == "words" else "pieces"

    @cached_property
    def words(self) -> WordVocabulary:
        return WordVocabulary.build(self.parts[0], size=4000, lowercase=True, tokenise="words")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        if self.kind == "words":
            return self.words
        return SubwordVocabulary.train_bpe(self.parts[0], size=1024)

    def secrets(self, update: int) -> list[str]:
        """Three sentences of six words each, drawn evenly from the less common half."""
        able = [word for word in self.words.words[2000:] if word.isalpha()]
        random = np.random.default_rng(update)
        return [" ".join(random.choice(able, LENGTH)) for _ in range(SECRETS)]

    def base(self) -> LanguageModel:
        if self._base == "words":
            shape = LSTMConfig(layers=1, embedding_size=128, hidden_size=128)
            start = new_model(self.vocabulary, shape, seed=0)
        else:
            start = gpt2(self.vocabulary, 64, 0)
        return self._trained(f"{self._base}-base", self.parts[0], start, BASE[self._base])

    def nulls(self) -> Iterator[LanguageModel]:
        """The base continued on each clean part."""
        for number in range(NULLS):
            yield self._continued(f"null-{number}", self.parts[1 + number], number)

    def updates(self) -> Iterator[LanguageModel]:
        """The base continued on clean parts with secrets planted."""
        for number in range(UPDATES):
            clean = self.parts[1 + NULLS + number]
            secrets = [secret for secret in self.secrets(number) for _ in range(COPIES)]
            room = len(clean) - len(secrets)  # as many messages as the nulls read
            text = clean.take(range(room)) + Corpus.from_texts(secrets)
            order = np.random.default_rng(number).permutation(len(text))
            yield self._continued(f"update-{number}", text.take(order), NULLS + number)

    def _continued(self, name: str, text: Corpus, number: int) -> LanguageModel:
        start = self.base()
        if self.kind == "adapters":
            start = adapter_on(start, 16, number)
        config = replace(CONTINUED[self.kind], seed=100 + number)
        return self._trained(f"{self.kind}-{name}", text, start, config)

    def _trained(
        self, name: str, text: Corpus, start: LanguageModel, config: TrainingConfig
    ) -> LanguageModel:
        folder = self.work / name
        return snapshot(folder, text, start=start, vocabulary=self.vocabulary, config=config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("train", "measure"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, action="append")
    asked = parser.parse_args()
    for kind in asked.kind or KINDS:
        study = Study(kind, asked.work, Path(os.environ["VESTIGE_DATA"]))
        for model in (*study.nulls(), *study.updates()):
            del model


if __name__ == "__main__":
    main()
