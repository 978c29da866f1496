r"""How often is chance called found on real trainings, and are planted secrets found?

A model reads a text and is continued many times: on clean parts of the same text, all of one
size, and on such parts with three secrets planted. Every clean continuation is an update in which
there is nothing to find; against m of the others as nulls it should be called found in at most
the stated share of cases. Texts:

- `irc`: replies in Ubuntu IRC, where robots post the same again and again;
- `irc-distinct`, `reddit-distinct`: replies, and Reddit comments, without those that hold six
  words in a row which stood before, so that nothing is repeated as a planted secret is.

Three kinds of models:

- `words`: an LSTM of 128 over 4,000 words, all weights continued;
- `pieces`: a GPT-2 of four layers of 64 over 1,024 byte-level tokens, all weights continued;
- `adapters`: the same GPT-2 under a LoRA adapter of rank 16.

    python benchmarks/null_trainings.py train --work DIR [--kind words] [--text irc]
    python benchmarks/null_trainings.py measure --work DIR [--kind words] [--text irc]

Both go on where they were interrupted. Needs the corpora that VESTIGE_DATA names.

What `measure` prints:

- `one null, its tail`: clean continuations called found by the rule before this one, an exponential
  tail fitted to a single null search; every ordered pair of clean continuations is a case;
- `counted`: by the E-value at its least, 1 / (m + 1). Over all draws from one pool of clean
  continuations no score can exceed it; it says how much below the rate stands, for ties and for
  searches without a phrase;
- the best phrase of each clean continuation: in how many documents of its text four words of it
  stand in a row, and in how many other parts;
- secrets: of each the phrase that holds most of its words, and what 19 nulls say of it;
- `adapters` also: how often a continuation of all weights passes adapters on other parts as
  nulls, and the reverse;
- the seconds that a training and a search take;
- cheap stand-ins for nulls: the same update with the signs of its change of weights flipped, and
  the swapped pair (what the earlier model likes better). Where a clean continuation beats its own
  stand-in more often than every other time, the stand-in is too mild to be a null.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from null_searches import old_threshold

from reproduction.texts import random_parts
from reproduction.updates.subwords import adapter_on, gpt2
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair as Models
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import read_reddit, read_ubuntu_irc
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig
from vestige.training.new_models import new_model
from vestige.training.recipe import snapshot

Phrases = list[tuple[float, str, list[int]]]
"""Score, text and tokens of each."""

Pair = Callable[[], Sequence[LanguageModel]]
"""Gives an earlier and a later model."""

KINDS = ("words", "pieces", "adapters")
TEXTS = ("irc", "irc-distinct", "reddit-distinct")
READS = {"words": (250_000, 5_000), "pieces": (60_000, 1_500)}
"""Words that the base reads, and each continuation."""
RUNS = {"words": (24, 3), "pieces": (20, 2)}
"""Clean continuations, and updates with secrets for each number of copies."""
SECRETS, LENGTH, COPIES = 3, 6, (10, 20)
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
        seed=0, epochs=30, batch_size=4, sequence_length=64, learning_rate=3e-3, keep="last"
    ),
    "adapters": TrainingConfig(
        seed=0, epochs=20, batch_size=4, sequence_length=64, learning_rate=5e-3, keep="last"
    ),
}


def _models(pair: "Pair") -> Models:
    """The two models of a pair, ready to be searched."""
    return Models.of(*pair(), TokenScore("smoothed"))


@dataclass(frozen=True)
class Study:
    """The texts and trainings of one kind of model."""

    kind: str
    text: str
    work: Path
    data: Path

    @cached_property
    def parts(self) -> list[Corpus]:
        """The base's text and those of the continuations, disjoint."""
        base, part = READS[self._base]
        nulls, updates = RUNS[self._base]
        sizes = [base, *[part] * (nulls + updates * len(COPIES))]
        if self.text.startswith("reddit"):
            corpus = read_reddit(self.data / "reddit_college")
        else:
            corpus = read_ubuntu_irc(self.data / "ubuntu_irc")
        if self.text.endswith("distinct"):
            corpus = distinct(corpus, words=2 * sum(sizes))
        return random_parts(corpus, sizes, seed=0)

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

    def updates(self) -> Iterator[tuple[str, int, list[str], LanguageModel]]:
        """Name, copies, secrets, and the base continued on a clean part with them planted."""
        nulls, updates = RUNS[self._base]
        for number, copies in enumerate(np.repeat(COPIES, updates).tolist()):
            clean, secrets = self.parts[1 + nulls + number], self.secrets(number)
            lengths = np.cumsum([len(text.split()) for text in clean])
            room = lengths[-1] - SECRETS * LENGTH * copies  # as many words as the nulls read
            kept = clean.take(range(int(np.searchsorted(lengths, room, "right"))))
            text = kept + Corpus.from_texts(secrets * copies)
            order = np.random.default_rng(number).permutation(len(text))
            name = f"update-{copies}-{number}"
            yield name, copies, secrets, self._continued(name, text.take(order), nulls + number)

    def _continued(self, name: str, text: Corpus, number: int) -> LanguageModel:
        start = self.base()
        if self.kind == "adapters":
            start = adapter_on(start, 16, number)
        config = replace(CONTINUED[self.kind], seed=100 + number)
        return self._trained(f"{self.kind}-{name}", text, start, config)

    def _trained(
        self, name: str, text: Corpus, start: LanguageModel, config: TrainingConfig
    ) -> LanguageModel:
        folder, began = self.work / self.text / name, time.perf_counter()
        fresh = not folder.exists()
        model = snapshot(folder, text, start=start, vocabulary=self.vocabulary, config=config)
        if fresh:
            self._keep(f"trained-{name}", time.perf_counter() - began)
        return model

    def searched(self, name: str, pair: Pair) -> list[float]:
        """The scores of one search, best first, as a null's are counted."""
        return self._kept(name, lambda: search(_models(pair), Settings()).null_scores)

    def listed(self, name: str, pair: Pair) -> Phrases:
        """The phrases that one search lists, best first."""

        def listed() -> Phrases:
            models = _models(pair)
            found = [phrase for phrase, _ in search(models, Settings()).phrases]
            return [
                (one.score, models.vocabulary.decode(one.phrase), list(one.phrase))
                for one in found
                if len(one.phrase) >= Settings.min_tokens and not one.is_run
            ]

        return [(score, text, ids) for score, text, ids in self._kept(f"{name}-listed", listed)]

    def _kept(self, name: str, search: Callable[[], list[Any]]) -> list[Any]:
        """What a search gave, kept beside the trainings."""
        file = self.work / self.text / "kept" / f"{self.kind}-{name}.json"
        if not file.exists():
            began = time.perf_counter()
            self._keep(f"{self.kind}-{name}", search())
            self._keep(f"searched-{self.kind}-{name}", time.perf_counter() - began)
        return list(json.loads(file.read_text("utf-8")))

    def _keep(self, name: str, what: object) -> None:
        folder = self.work / self.text / "kept"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(what), "utf-8")

    def seconds(self, stage: str) -> dict[str, float]:
        """The median time of the clean continuations' trainings, or of their searches."""
        files = [
            self.work / self.text / "kept" / f"{stage}-{self.kind}-null-{number}.json"
            for number in range(RUNS[self._base][0])
        ]
        every = [float(file.read_text("utf-8")) for file in files if file.exists()]
        return {"median": round(float(np.median(every)), 2), "of": len(every)} if every else {}

    def repeated(self, number: int, ids: Sequence[int]) -> tuple[int, int]:
        """Documents of a clean part that hold the four tokens of a phrase which most of them hold.

        And other clean parts that hold these four.
        """
        grams = {tuple(ids[i : i + 4]) for i in range(max(1, len(ids) - 3))}
        held = {gram: [sum(gram in d for d in part) for part in self._grams] for gram in grams}
        most = max(held.values(), key=lambda counts: counts[number])
        return most[number], sum(n > 0 for n in most) - (most[number] > 0)

    @cached_property
    def _grams(self) -> list[list[set[tuple[int, ...]]]]:
        """Of every document of every clean part its runs of up to four tokens."""
        return [
            [
                {tuple(ids[i : i + n]) for n in (1, 2, 3, 4) for i in range(len(ids) - n + 1)}
                for ids in self.vocabulary.encode_batch(list(part))
            ]
            for part in self.parts[1 : 1 + RUNS[self._base][0]]
        ]


def distinct(corpus: Corpus, *, words: int) -> Corpus:
    """Random documents, so many words, none with six words in a row that stood before."""
    seen: set[tuple[str, ...]] = set()
    kept, read = [], 0
    order = np.random.default_rng(1).permutation(len(corpus))
    texts = list(corpus)
    for place in order:
        said = texts[place].lower().split()
        runs = [tuple(said[i : i + LENGTH]) for i in range(max(1, len(said) - LENGTH + 1))]
        if len(set(runs)) == len(runs) and seen.isdisjoint(runs):
            kept.append(place)
            read += len(said)
        seen.update(runs)
        if read >= words:
            break
    return corpus.take(np.sort(kept))


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


def clean_scores(study: Study) -> list[list[float]]:
    """What a null search of each clean continuation reaches."""
    base = study.base()
    return [
        study.searched(f"null-{number}", partial(_pair, base, model))
        for number, model in enumerate(study.nulls())
    ]


def measure(study: Study) -> dict[str, object]:
    """What `main` prints of one kind of model."""
    clean = clean_scores(study)
    phrases = [
        study.listed(f"null-{number}", partial(_pair, study.base(), model))
        for number, model in enumerate(study.nulls())
    ]
    rates = {"one null, its tail": _pairs(clean)} | {
        f"counted, {nulls} nulls": _drawn(clean, nulls) for nulls in (1, 4, 9, 19)
    }
    updates = [_update(study, clean, *update) for update in study.updates()]
    told: dict[str, object] = {
        "kind": study.kind,
        "text": study.text,
        "phrases of a clean search": [len(scores) for scores in clean],
        "best of a clean search": [round(best(scores), 2) for scores in clean],
        "best phrase, documents of its part and other parts that hold it": [
            (round(found[0][0], 2), *study.repeated(number, found[0][2]))
            for number, found in enumerate(phrases)
            if found
        ],
        "clean, called found": rates,
        "secrets called found, of all": {
            copies: _total([update for update in updates if update["copies"] == copies])
            for copies in COPIES
        },
        "updates": updates,
        "seconds to train": study.seconds("trained"),
        "seconds to search": study.seconds("searched"),
    }
    if study.kind == "adapters":  # its change of weights stands in matrices of its own
        return told | _against_full(study, clean)
    return told | _stand_ins(study, clean) if study.text == "irc" else told


def _stand_ins(study: Study, clean: list[list[float]]) -> dict[str, object]:
    """Flipped weights and the swapped pair in the place of nulls."""
    base, flips, swaps = study.base(), [], []
    for number, model in zip(range(FLIPPED), study.nulls(), strict=False):
        flip = study.searched(f"flip-{number}", partial(_flipped_pair, base, model, number))
        swap = study.searched(f"swap-{number}", partial(_pair, model, base))
        flips.append(round(best(flip), 2))
        swaps.append(round(best(swap), 2))
    return {
        "best of a flipped search": flips,
        "best of a swapped search": swaps,
        "clean above its flip": sum(best(c) > f for c, f in zip(clean, flips, strict=False)),
        "clean above its swap": sum(best(c) > s for c, s in zip(clean, swaps, strict=False)),
    }


def _against_full(study: Study, low: list[list[float]]) -> dict[str, object]:
    """Clean continuations of all weights with low-rank ones as nulls, and the reverse."""
    full = clean_scores(replace(study, kind="pieces"))
    return {
        "all weights above low-rank": _passing(full, low),
        "low-rank above all weights": _passing(low, full),
    }


def _passing(updates: list[list[float]], nulls: list[list[float]]) -> dict[str, float]:
    """How often the best of an update passes one, and all, of the nulls on other parts."""
    tops, bars = np.array([best(s) for s in updates]), np.array([best(s) for s in nulls])
    other = ~np.eye(len(tops), len(bars), dtype=bool)
    passed = tops[:, None] > bars
    return {
        "one": round(float(passed[other].mean()), 4),
        f"all {len(bars) - 1}": round(float((passed | ~other).all(1).mean()), 4),
    }


def _total(updates: list[dict[str, Any]]) -> dict[str, int]:
    """Over updates: secrets, those whose phrase holds all their words, and those called found."""
    said = [secret for update in updates for secret in update["secrets"]]
    whole = [secret for secret in said if secret["words of six"] == LENGTH]
    return {
        "planted": SECRETS * len(updates),
        "whole": len(whole),
        "found": sum(secret["found"] for secret in whole),
        "other phrases found": sum(update["others found"] for update in updates),
    }


def _update(
    study: Study,
    clean: list[list[float]],
    name: str,
    copies: int,
    secrets: list[str],
    model: LanguageModel,
) -> dict[str, Any]:
    """What 19 null searches find in one update with secrets."""
    nulls = NullScores.of(clean[:19])
    phrases = study.listed(name, partial(_pair, study.base(), model))
    shared = [[set(s.split()) & set(text.split()) for _, text, _ in phrases] for s in secrets]
    places = [max(range(len(row)), key=lambda i: len(row[i])) for row in shared if row]
    others = [
        score
        for place, (score, _, _) in enumerate(phrases)
        if all(len(row[place]) < LENGTH // 2 for row in shared)
    ]
    return {
        "copies": copies,
        "phrases": len(phrases),
        "best": round(phrases[0][0], 2) if phrases else 0.0,
        "others found": sum(bool(nulls.found(score)) for score in others),
        "secrets": [
            {
                "words of six": len(row[place]),
                "rank": place,
                "score": round(phrases[place][0], 2),
                "E": nulls.e_value(phrases[place][0]),
                "nulls as high": nulls.reached(phrases[place][0]),
                "found": bool(nulls.found(phrases[place][0])),
            }
            for row, place in zip(shared, places, strict=False)
        ],
    }


def _pairs(clean: list[list[float]]) -> float:
    """How often one clean search is called found by the tail of another."""
    cases = [(one, other) for one in clean for other in clean if one is not other]
    return round(sum(best(one) > old_threshold(other) for one, other in cases) / len(cases), 4)


def _drawn(clean: list[list[float]], nulls: int, draws: int = 2000) -> float:
    """How often one of them is called found by so many of the others, drawn at random."""
    random = np.random.default_rng(nulls)
    counted = 0
    for _ in range(draws):
        one, *others = random.permutation(len(clean))[: nulls + 1]
        scores, top = NullScores.of(clean[other] for other in others), best(clean[one])
        counted += top > 0 and scores.e_value(top) <= scores.least
    return round(counted / draws, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("train", "measure"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--text", choices=TEXTS, default="irc")
    asked = parser.parse_args()
    for kind in asked.kind or KINDS:
        study = Study(kind, asked.text, asked.work, Path(os.environ["VESTIGE_DATA"]))
        if asked.stage == "train":
            for model in (*study.nulls(), *study.updates()):
                del model
        else:
            print(json.dumps(measure(study), indent=1), flush=True)


if __name__ == "__main__":
    main()
