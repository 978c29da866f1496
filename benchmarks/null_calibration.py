"""How often a clean update is called found beside null models.

- `simulated`: scores of m null searches and of one more of the same kind, from eight distributions.
  `above all` has the smallest counted E-value, 1 / (m + 1), which is the rate to expect; `found` is
  E at most 0.05, as `diff` says it, never with fewer than 19. `tail of 1` is an earlier rule: an
  exponential tail fitted to one null search. Rates are in percent.
- `trained`: a model reads a text and is continued on clean parts of it, of one size, and on parts
  with three planted secrets. Each clean continuation is an update with nothing to find.
  `--kind words` is an LSTM of 128 over 4,000 words, `pieces` a GPT-2 over 1,024 tokens, `adapters`
  the same under a LoRA adapter. `--text irc` are replies in Ubuntu IRC; `irc-distinct` and
  `reddit-distinct` are without texts that repeat six words in a row.

    python benchmarks/null_calibration.py simulated [--times 2000]
    VESTIGE_DATA=corpora python benchmarks/null_calibration.py trained --work DIR [--kind words]
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from corpora import invented
from harness import Row, Run, main
from networks import adapter, gpt2

from vestige.audits.update.nulls import LEVEL, NullScores
from vestige.audits.update.pair import Pair
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

# Simulated ---------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, int], np.ndarray]
TAILS: dict[str, Draw] = {
    "uniform": lambda random, n: random.random(n),
    "half-normal": lambda random, n: np.abs(random.standard_normal(n)),
    "gamma 4": lambda random, n: random.gamma(4, size=n),
    "exponential": lambda random, n: random.exponential(size=n),
    "Weibull 0.6": lambda random, n: random.weibull(0.6, size=n),
    "lognormal": lambda random, n: random.lognormal(size=n),
    "Pareto 3": lambda random, n: random.pareto(3, size=n),
    # searches that differ in scale, and in how many phrases they have, or none
    "uneven": lambda random, n: (
        random.lognormal(0, 0.5) * random.exponential(size=random.poisson(random.exponential(n)))
    ),
}
PHRASES, NULLS = (20, 51, 400), (1, 4, 9, 19)
RULES = ("tail of 1", "above all", "found")


def simulated(run: Run) -> list[Row]:
    """Rates of each rule by distribution, phrases a search and null searches; last their means."""
    trials, rows = run.times(2000, 20), []
    for number, (name, draw) in enumerate(TAILS.items()):
        for phrases in PHRASES:
            for nulls in NULLS:
                random = np.random.default_rng([number, phrases, nulls])
                called = np.array([_called(random, draw, phrases, nulls) for _ in range(trials)])
                shares = dict(zip(RULES, (100 * called.mean(0)).tolist(), strict=True))
                rows.append({"scores": name, "phrases": phrases, "nulls": nulls, **shares})
    for nulls in NULLS:
        own = [row for row in rows if row["nulls"] == nulls]
        means = {rule: float(np.mean([row[rule] for row in own])) for rule in RULES}
        rows.append({"scores": "all", "phrases": "all", "nulls": nulls, **means})
    return rows


def _called(random: np.random.Generator, draw: Draw, phrases: int, nulls: int) -> list[bool]:
    """Whether each rule calls the best phrase of a clean update found."""
    searches = [draw(random, phrases).tolist() for _ in range(nulls + 1)]
    update = searches.pop()
    if not update:
        return [False] * len(RULES)
    best, scores = max(update), NullScores.of(searches)
    return [
        best > tail_threshold(searches[0]),
        scores.e_value(best) <= scores.least,
        bool(scores.found(best)),
    ]


def tail_threshold(scores: Sequence[float], tail: int = 50) -> float:
    """The score with E = 0.05 by an exponential tail of one null search, never under its best."""
    ranked = sorted(scores, reverse=True)
    above = min(tail, len(ranked) - 1)
    if above < 1:
        return max(ranked, default=0.0)
    excess = math.fsum(s - ranked[above] for s in ranked[:above]) / above
    growth = math.pow(above / LEVEL, 1 / above) - 1
    return max(ranked[0], ranked[above] + above * excess * growth)


# Trained -----------------------------------------------------------------------------------------

KINDS = ("words", "pieces", "adapters")
TEXTS = ("irc", "irc-distinct", "reddit-distinct")
SECRETS, LENGTH, COPIES = 3, 6, (10, 20)
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


@dataclass(frozen=True)
class Sizes:
    """Words that the base and each continuation read; clean continuations; updates by copies."""

    base: int
    part: int
    clean: int
    updates: int


SIZES = {"words": Sizes(250_000, 5_000, 24, 3), "pieces": Sizes(60_000, 1_500, 20, 2)}
QUICK = Sizes(3_000, 600, 3, 1)


@dataclass(frozen=True)
class Study:
    """The texts and trainings of one kind of model."""

    run: Run
    kind: str
    text: str

    @property
    def family(self) -> str:
        return "words" if self.kind == "words" else "pieces"

    @property
    def sizes(self) -> Sizes:
        return self.run.size(SIZES[self.family], QUICK)

    @cached_property
    def parts(self) -> list[Corpus]:
        """The base's text and those of the continuations, disjoint."""
        count = self.sizes.clean + self.sizes.updates * len(COPIES)
        sizes = [self.sizes.base, *[self.sizes.part] * count]
        if self.run.quick:
            corpus = Corpus.from_texts(invented(800, seed=1, words=(8, 30)))
        elif self.text.startswith("reddit"):
            corpus = read_reddit(self.run.data / "reddit_college")
        else:
            corpus = read_ubuntu_irc(self.run.data / "ubuntu_irc")
        if self.text.endswith("distinct"):
            corpus = distinct(corpus, words=2 * sum(sizes))
        return random_parts(corpus, sizes)

    @cached_property
    def words(self) -> WordVocabulary:
        return WordVocabulary.build(self.parts[0], size=4000, lowercase=True, tokenise="words")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self.words if self.kind == "words" else self._pieces

    @cached_property
    def _pieces(self) -> SubwordVocabulary:
        return SubwordVocabulary.train_bpe(self.parts[0], size=1024)

    @cached_property
    def base(self) -> LanguageModel:
        if self.family == "words":
            hidden = self.run.size(128, 16)
            shape = LSTMConfig(layers=1, embedding_size=hidden, hidden_size=hidden)
            start = new_model(self.vocabulary, shape, seed=0)
        else:
            start = gpt2(self._pieces, width=64, layers=4, heads=4, positions=128)
        return self._trained(f"{self.family}-base", self.parts[0], start, BASE[self.family])

    def clean(self, number: int) -> LanguageModel:
        """The base continued on a clean part."""
        return self._continued(f"null-{number}", self.parts[1 + number], number)

    def secrets(self, update: int) -> list[str]:
        """Three sentences of six words, drawn from the less common half."""
        able = [word for word in self.words.words[len(self.words) // 2 :] if word.isalpha()]
        random = np.random.default_rng(update)
        return [" ".join(random.choice(able, LENGTH)) for _ in range(SECRETS)]

    def update(self, number: int, copies: int) -> LanguageModel:
        """The base continued on a part with planted secrets, of as many words as a clean one."""
        clean, secrets = self.parts[1 + self.sizes.clean + number], self.secrets(number)
        lengths = np.cumsum([len(text.split()) for text in clean])
        room = lengths[-1] - SECRETS * LENGTH * copies
        kept = clean.take(range(max(0, int(np.searchsorted(lengths, room, "right")))))
        text = kept + Corpus.from_texts(secrets * copies)
        order = np.random.default_rng(number).permutation(len(text))
        name = f"update-{copies}-{number}"
        return self._continued(name, text.take(order), self.sizes.clean + number)

    def _continued(self, name: str, text: Corpus, number: int) -> LanguageModel:
        start: Any = self.base
        if self.kind == "adapters":
            start = adapter(start, rank=16, seed=number)
        config = replace(CONTINUED[self.kind], seed=100 + number)
        return self._trained(f"{self.kind}-{name}", text, start, config)

    def _trained(
        self, name: str, text: Corpus, start: LanguageModel, config: TrainingConfig
    ) -> LanguageModel:
        config = replace(config, epochs=self.run.size(config.epochs, 1))
        folder = self.run.folder / self.text / name
        return snapshot(folder, text, start=start, vocabulary=self.vocabulary, config=config)

    def phrases(self, model: LanguageModel) -> Row:
        """Scores of a search as a null's are counted, and the phrases that it lists."""
        pair = Pair.of(self.base, model, TokenScore("smoothed"))
        found = search(pair, Settings())
        listed = [
            (one.score, pair.vocabulary.decode(one.phrase))
            for one, _ in found.phrases
            if len(one.phrase) >= Settings.min_tokens and not one.is_repetitive
        ]
        return {"scores": list(found.null_scores), "listed": listed}


def trained(run: Run) -> list[Row]:
    """Rates of clean continuations called found, and secrets called found."""
    study = Study(run, run.options.kind, run.options.text)
    name = f"{study.kind}, {study.text}"
    clean = [
        row["scores"]
        for row in run.draw(
            f"{name}, clean", lambda n: study.phrases(study.clean(n)), range(study.sizes.clean)
        )
    ]
    best = sorted(round(max(scores, default=0.0), 2) for scores in clean)
    rows = [{"models": name, "best of clean searches": best, "tail of 1": _by_tail(clean)}]
    counts = [nulls for nulls in NULLS if nulls < len(clean)]
    rows[0] |= {f"above all of {nulls}": _drawn(clean, nulls) for nulls in counts}
    for copies in COPIES:
        first = COPIES.index(copies) * study.sizes.updates
        found = run.draw(
            f"{name}, {copies} copies",
            lambda n, copies=copies: study.phrases(study.update(n, copies)),
            range(first, first + study.sizes.updates),
        )
        told = [_secrets(study, clean, first + n, row["listed"]) for n, row in enumerate(found)]
        sums = {key: sum(row[key] for row in told) for key in told[0]}
        rows.append({"models": name, "copies": copies, **sums})
    return rows


def _secrets(
    study: Study, clean: list[list[float]], number: int, listed: list[tuple[float, str]]
) -> dict[str, int]:
    """Of an update: its secrets, those listed whole, and what 19 null searches call found."""
    nulls, secrets = NullScores.of(clean[:19]), [set(s.split()) for s in study.secrets(number)]
    whole = [
        max((score for score, text in listed if one <= set(text.split())), default=None)
        for one in secrets
    ]
    others = [
        score
        for score, text in listed
        if all(len(one & set(text.split())) < LENGTH // 2 for one in secrets)
    ]
    return {
        "planted": len(secrets),
        "listed whole": sum(score is not None for score in whole),
        "found": sum(score is not None and bool(nulls.found(score)) for score in whole),
        "other phrases found": sum(bool(nulls.found(score)) for score in others),
    }


def _by_tail(clean: list[list[float]]) -> float:
    """Percent of ordered pairs in which one clean search is found by the tail of the other."""
    pairs = [(one, other) for one in clean for other in clean if one is not other]
    hits = sum(max(one, default=0.0) > tail_threshold(other) for one, other in pairs)
    return 100 * hits / len(pairs)


def _drawn(clean: list[list[float]], nulls: int, draws: int = 2000) -> float:
    """Percent of clean searches above all of so many others, drawn at random."""
    random, counted = np.random.default_rng(nulls), 0
    for _ in range(draws):
        one, *others = random.permutation(len(clean))[: nulls + 1]
        scores, top = NullScores.of(clean[n] for n in others), max(clean[one], default=0.0)
        counted += top > 0 and scores.e_value(top) <= scores.least
    return 100 * counted / draws


def random_parts(corpus: Corpus, sizes: Sequence[int]) -> list[Corpus]:
    """Disjoint random documents with about so many words each."""
    order = np.random.default_rng(0).permutation(len(corpus))
    lengths = np.array([len(text.split()) for text in corpus])[order]
    ends = np.searchsorted(np.cumsum(lengths), np.cumsum(sizes)) + 1
    return [corpus.take(order[first:last]) for first, last in pairwise([0, *ends])]


def distinct(corpus: Corpus, *, words: int) -> Corpus:
    """Random documents, so many words, none with six words in a row that came before."""
    seen: set[tuple[str, ...]] = set()
    texts, kept, read = list(corpus), [], 0
    for place in np.random.default_rng(1).permutation(len(corpus)):
        said = texts[place].lower().split()
        runs = [tuple(said[i : i + LENGTH]) for i in range(max(1, len(said) - LENGTH + 1))]
        if len(set(runs)) == len(runs) and seen.isdisjoint(runs):
            kept.append(place)
            read += len(said)
        seen.update(runs)
        if read >= words:
            break
    return corpus.take(np.sort(kept))


def options(parser: Any) -> None:
    """Models and texts of `trained`."""
    parser.add_argument("--kind", choices=KINDS, default="words")
    parser.add_argument("--text", choices=TEXTS, default="irc")


PARTS = {"simulated": simulated, "trained": trained}

if __name__ == "__main__":
    main("null_calibration", __doc__, PARTS, options)
