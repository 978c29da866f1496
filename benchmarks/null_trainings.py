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

Both go on where they were interrupted. Needs the corpora that VESTIGE_DATA names.

What `measure` prints:

- `one null, its tail`: clean continuations called found by the rule before this one, an exponential
  tail fitted to a single null search; every ordered pair of clean continuations is a case;
- `extrapolated`: the same by the fitted tail of m null searches, which decides nothing any more;
- `counted`: by the E-value at its least, 1 / (m + 1). Over all draws from one pool of clean
  continuations no score can exceed it; it says how much below the rate stands, for ties and for
  searches without a phrase;
- secrets: of each the phrase that holds most of its words, and what 19 nulls say of it;
- cheap stand-ins for nulls: the same update with the signs of its change of weights flipped, and
  the swapped pair (what the earlier model likes better). Where a clean continuation beats its own
  stand-in more often than every other time, the stand-in is too mild to be a null.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from null_searches import old_threshold

from vestige.attacks.chance import LEVEL, NullScores
from vestige.attacks.update_diff import null_scores, update_diff
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
READS = {"words": (250_000, 5_000), "pieces": (60_000, 1_500)}
"""Words that the base reads, and each continuation."""
RUNS = {"words": (24, 3), "pieces": (20, 4)}
"""Clean continuations, and updates with secrets."""
SECRETS, LENGTH, COPIES = 3, 6, 10
FLIPPED = 12
"""Clean continuations whose change of weights is flipped, and whose pair is swapped."""

BASE = {
    "words": TrainingConfig(seed=0, epochs=3, learning_rate=3e-3, schedule="cosine"),
    "pieces": TrainingConfig(
        seed=0, epochs=3, batch_size=8, sequence_length=64, learning_rate=3e-3, schedule="cosine"
    ),
}
CONTINUED = {
    "words": TrainingConfig(seed=0, epochs=15, batch_size=8, learning_rate=3e-3, keep="last"),
    "pieces": TrainingConfig(
        seed=0, epochs=5, batch_size=4, sequence_length=64, learning_rate=2e-3, keep="last"
    ),
    "adapters": TrainingConfig(
        seed=0, epochs=5, batch_size=4, sequence_length=64, learning_rate=5e-3, keep="last"
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
        return random_parts(corpus, [base, *[part] * sum(RUNS[self._base])], seed=0)

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
        for number in range(RUNS[self._base][0]):
            yield self._continued(f"null-{number}", self.parts[1 + number], number)

    def updates(self) -> Iterator[LanguageModel]:
        """The base continued on clean parts with secrets planted."""
        nulls, updates = RUNS[self._base]
        for number in range(updates):
            clean = self.parts[1 + nulls + number]
            secrets = [secret for secret in self.secrets(number) for _ in range(COPIES)]
            room = len(clean) - len(secrets)  # as many messages as the nulls read
            text = clean.take(range(room)) + Corpus.from_texts(secrets)
            order = np.random.default_rng(number).permutation(len(text))
            yield self._continued(f"update-{number}", text.take(order), nulls + number)

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

    def searched(self, name: str, pair: Callable[[], Sequence[LanguageModel]]) -> list[float]:
        """The scores of one search, best first; kept beside the trainings."""
        file = self.work / "scores" / f"{self.kind}-{name}.json"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            earlier, later = pair()
            scores = null_scores(earlier, [later]).searches[0]
            file.write_text(json.dumps(scores), "utf-8")
        return list(json.loads(file.read_text("utf-8")))


@torch.no_grad()
def flipped(base: LanguageModel, after: LanguageModel, *, seed: int) -> LanguageModel:
    """The base, moved as far as the update moved it, every weight up or down by lot."""
    model, lot = deepcopy(base), torch.Generator().manual_seed(seed)
    for start, end, own in zip(
        base.parameters(), after.parameters(), model.parameters(), strict=True
    ):
        signs = torch.randint(0, 2, start.shape, generator=lot) * 2 - 1
        own.copy_(start + signs * (end - start))
    return model


def _pair(earlier: LanguageModel, later: LanguageModel) -> tuple[LanguageModel, LanguageModel]:
    return earlier, later


def _flipped_pair(
    base: LanguageModel, after: LanguageModel, seed: int
) -> tuple[LanguageModel, LanguageModel]:
    return base, flipped(base, after, seed=seed)


def best(scores: Sequence[float]) -> float:
    return scores[0] if scores else 0.0


def measure(study: Study) -> dict[str, object]:
    """What `main` prints of one kind of model."""
    base = study.base()
    clean = [
        study.searched(f"null-{number}", partial(_pair, base, model))
        for number, model in enumerate(study.nulls())
    ]
    rates = {"one null, its tail": _pairs(clean)} | {
        f"{rule}, {nulls} nulls": rate
        for nulls in (1, 4, 9, 19)
        for rule, rate in _drawn(clean, nulls).items()
    }
    told: dict[str, object] = {
        "kind": study.kind,
        "phrases of a clean search": [len(scores) for scores in clean],
        "best of a clean search": [round(best(scores), 2) for scores in clean],
        "clean, called found": rates,
        "updates": [
            _update(study, base, model, clean, n) for n, model in enumerate(study.updates())
        ],
    }
    if study.kind == "adapters":  # its change of weights stands in matrices of its own
        return told
    flips, swaps = [], []
    for number, model in enumerate(study.nulls()):
        if number == FLIPPED:
            break
        flip = study.searched(f"flip-{number}", partial(_flipped_pair, base, model, number))
        swap = study.searched(f"swap-{number}", partial(_pair, model, base))
        flips.append(round(best(flip), 2))
        swaps.append(round(best(swap), 2))
    return told | {
        "best of a flipped search": flips,
        "best of a swapped search": swaps,
        "clean above its flip": sum(best(c) > f for c, f in zip(clean, flips, strict=False)),
        "clean above its swap": sum(best(c) > s for c, s in zip(clean, swaps, strict=False)),
    }


def _update(
    study: Study, base: LanguageModel, model: LanguageModel, clean: list[list[float]], number: int
) -> dict[str, object]:
    """What 19 null searches find in one update with secrets."""
    nulls = NullScores.of(clean[:19])
    phrases = [f for f in update_diff(base, model, nulls=nulls).findings if not f.run]
    said = {
        secret: [set(secret.split()) & set(f.phrase.split()) for f in phrases]
        for secret in study.secrets(number)
    }
    best_of = {s: max(range(len(w)), key=lambda i: len(w[i])) for s, w in said.items() if w}
    return {
        "phrases": len(phrases),
        "found": sum(bool(nulls.found(finding.score)) for finding in phrases),
        "best": round(best([finding.score for finding in phrases]), 2),
        "secrets": [
            {
                "words of six": len(said[secret][place]),
                "rank": place,
                "score": round(phrases[place].score, 2),
                "E": nulls.e_value(phrases[place].score),
                "nulls as high": nulls.reached(phrases[place].score),
            }
            for secret, place in best_of.items()
        ],
    }


def _pairs(clean: list[list[float]]) -> float:
    """How often one clean search is called found by the tail of another."""
    cases = [(one, other) for one in clean for other in clean if one is not other]
    return round(sum(best(one) > old_threshold(other) for one, other in cases) / len(cases), 4)


def _drawn(clean: list[list[float]], nulls: int, draws: int = 2000) -> dict[str, float]:
    """How often one of them is called found by so many of the others, drawn at random."""
    random = np.random.default_rng(nulls)
    counted = fitted = 0
    for _ in range(draws):
        one, *others = random.permutation(len(clean))[: nulls + 1]
        scores, top = NullScores.of(clean[other] for other in others), best(clean[one])
        beyond = scores.extrapolated_e_value(top) if top > 0 else None
        counted += top > 0 and scores.e_value(top) <= scores.least
        fitted += beyond is not None and beyond <= LEVEL
    return {"counted": round(counted / draws, 4), "extrapolated": round(fitted / draws, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("train", "measure"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, action="append")
    asked = parser.parse_args()
    for kind in asked.kind or KINDS:
        study = Study(kind, asked.work, Path(os.environ["VESTIGE_DATA"]))
        if asked.stage == "train":
            for model in (*study.nulls(), *study.updates()):
                del model
        else:
            print(json.dumps(measure(study), indent=1), flush=True)


if __name__ == "__main__":
    main()
