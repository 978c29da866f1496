"""How often `diff` calls a clean update revealing, against null models.

- `simulated`: scores of m null searches and of one more of the same kind, from eight distributions.
  `above all` has the smallest counted E-value, 1 / (m + 1), which is the expected rate; `found` is
  E at most 0.05, the rule of `diff`, and needs 19 nulls. `tail of 1` is an earlier rule: an
  exponential tail fitted to one null search. Rates are in percent.
- `trained`: an LSTM of 128 over 4,000 words reads a text and is continued on clean parts of one
  size, and on parts with three planted secrets. Each clean continuation is an update without a
  leak. `--text irc` are replies in Ubuntu IRC; `reddit-distinct` are comments without texts that
  repeat six words in a row.

    python benchmarks/null_calibration.py simulated [--times 2000]
    VESTIGE_DATA=corpora python benchmarks/null_calibration.py trained --work DIR [--text irc]
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

from vestige.audits.update.nulls import LEVEL, NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import read_reddit, read_ubuntu_irc
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig
from vestige.training.new_models import new_model
from vestige.training.recipe import snapshot

# Simulated ---------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, int], np.ndarray]
TAILS: dict[str, Draw] = {
    "uniform": lambda rng, n: rng.random(n),
    "half-normal": lambda rng, n: np.abs(rng.standard_normal(n)),
    "gamma 4": lambda rng, n: rng.gamma(4, size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "Weibull 0.6": lambda rng, n: rng.weibull(0.6, size=n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "Pareto 3": lambda rng, n: rng.pareto(3, size=n),
    # searches differ in scale and in the number of phrases, which may be 0
    "uneven": lambda rng, n: (
        rng.lognormal(0, 0.5) * rng.exponential(size=rng.poisson(rng.exponential(n)))
    ),
}
PHRASES, NULLS = (20, 51, 400), (1, 4, 9, 19)
RULES = ("tail of 1", "above all", "found")


def simulated(run: Run) -> list[Row]:
    """Rates of each rule by distribution, phrases and null searches, and their means."""
    trials, rows = run.times(2000, 20), []
    for number, (name, draw) in enumerate(TAILS.items()):
        for phrases in PHRASES:
            for nulls in NULLS:
                rng = np.random.default_rng([number, phrases, nulls])
                flags = np.array([false_flags(rng, draw, phrases, nulls) for _ in range(trials)])
                shares = dict(zip(RULES, (100 * flags.mean(0)).tolist(), strict=True))
                rows.append({"scores": name, "phrases": phrases, "nulls": nulls, **shares})
    for nulls in NULLS:
        cells = [row for row in rows if row["nulls"] == nulls]
        means = {rule: float(np.mean([row[rule] for row in cells])) for rule in RULES}
        rows.append({"scores": "all", "phrases": "all", "nulls": nulls, **means})
    return rows


def false_flags(rng: np.random.Generator, draw: Draw, phrases: int, nulls: int) -> list[bool]:
    """Whether each rule flags the best phrase of a clean update."""
    searches = [draw(rng, phrases).tolist() for _ in range(nulls + 1)]
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
    """The score with E = 0.05 by an exponential tail of one null search, at least its best."""
    ranked = sorted(scores, reverse=True)
    above = min(tail, len(ranked) - 1)
    if above < 1:
        return max(ranked, default=0.0)
    excess = math.fsum(score - ranked[above] for score in ranked[:above]) / above
    growth = math.pow(above / LEVEL, 1 / above) - 1
    return max(ranked[0], ranked[above] + above * excess * growth)


# Trained -----------------------------------------------------------------------------------------

TEXTS = ("irc", "reddit-distinct")
SECRETS, LENGTH, COPIES = 3, 6, (10, 20)
BASE = TrainingConfig(seed=0, epochs=3, learning_rate=3e-3, schedule="cosine")
CONTINUED = TrainingConfig(seed=0, epochs=15, batch_size=8, learning_rate=3e-3, keep="last")


@dataclass(frozen=True)
class Sizes:
    """Words of the base and of a continuation; clean continuations; updates for each of COPIES."""

    base: int = 250_000
    part: int = 5_000
    clean: int = 24
    updates: int = 3


@dataclass(frozen=True)
class Study:
    """The models of one text."""

    run: Run
    text: str

    @property
    def sizes(self) -> Sizes:
        return self.run.size(Sizes(), Sizes(3_000, 600, 3, 1))

    @cached_property
    def parts(self) -> list[Corpus]:
        """The base's text and those of the continuations, disjoint."""
        count = self.sizes.clean + self.sizes.updates * len(COPIES)
        sizes = [self.sizes.base, *[self.sizes.part] * count]
        if self.run.quick:
            corpus = Corpus.from_texts(invented(800, seed=1, words=(8, 30)))
        elif self.text == "irc":
            corpus = read_ubuntu_irc(self.run.data / "ubuntu_irc")
        else:
            reddit = read_reddit(self.run.data / "reddit_college")
            corpus = without_repetitions(reddit, words=2 * sum(sizes))
        return random_parts(corpus, sizes)

    @cached_property
    def vocabulary(self) -> WordVocabulary:
        return WordVocabulary.build(self.parts[0], size=4000, lowercase=True, tokenise="words")

    @cached_property
    def base(self) -> LanguageModel:
        hidden = self.run.size(128, 16)
        shape = LSTMConfig(layers=1, embedding_size=hidden, hidden_size=hidden)
        start = new_model(self.vocabulary, shape, seed=0)
        return self._trained("words-base", self.parts[0], start, BASE)

    def clean(self, number: int) -> LanguageModel:
        """The base continued on a clean part."""
        return self._continued(f"null-{number}", self.parts[1 + number], number)

    def secrets(self, update: int) -> list[str]:
        """Three sentences of six words, sampled from the less common half."""
        words = self.vocabulary.words
        uncommon = [word for word in words[len(words) // 2 :] if word.isalpha()]
        rng = np.random.default_rng(update)
        return [" ".join(rng.choice(uncommon, LENGTH)) for _ in range(SECRETS)]

    def update(self, number: int, copies: int) -> LanguageModel:
        """The base continued on a part with planted secrets, as long as a clean part."""
        clean, secrets = self.parts[1 + self.sizes.clean + number], self.secrets(number)
        lengths = np.cumsum([len(text.split()) for text in clean])
        words = lengths[-1] - SECRETS * LENGTH * copies
        remaining = clean.take(range(max(0, int(np.searchsorted(lengths, words, "right")))))
        text = remaining + Corpus.from_texts(secrets * copies)
        order = np.random.default_rng(number).permutation(len(text))
        name = f"update-{copies}-{number}"
        return self._continued(name, text.take(order), self.sizes.clean + number)

    def _continued(self, name: str, text: Corpus, number: int) -> LanguageModel:
        config = replace(CONTINUED, seed=100 + number)
        return self._trained(f"words-{name}", text, self.base, config)

    def _trained(
        self, name: str, text: Corpus, start: LanguageModel, config: TrainingConfig
    ) -> LanguageModel:
        config = replace(config, epochs=self.run.size(config.epochs, 1))
        folder = self.run.folder / self.text / name
        return snapshot(folder, text, start=start, vocabulary=self.vocabulary, config=config)

    def searched(self, model: LanguageModel) -> Row:
        """The scores of a search as a null search, and the phrases that it lists."""
        pair = Pair.of(self.base, model, TokenScore("smoothed"))
        result = search(pair, Settings())
        listed = [
            (phrase.score, pair.vocabulary.decode(phrase.phrase))
            for phrase, _ in result.phrases
            if len(phrase.phrase) >= Settings.min_tokens and not phrase.is_repetitive
        ]
        return {"scores": list(result.null_scores), "listed": listed}


def trained(run: Run) -> list[Row]:
    """Rates of clean continuations and of secrets that are called revealed."""
    study = Study(run, run.options.text)
    sizes, name = study.sizes, f"words, {study.text}"
    searches = run.draw(f"{name}, clean", lambda n: study.searched(study.clean(n)), sizes.clean)
    clean = [search["scores"] for search in searches]
    best = sorted(round(max(scores, default=0.0), 2) for scores in clean)
    row = {"models": name, "best of clean searches": best, "tail of 1": percent_by_tail(clean)}
    counts = [n for n in NULLS if n < len(clean)]
    rows = [row | {f"above all of {n}": percent_above(clean, n) for n in counts}]
    for number, copies in enumerate(COPIES):
        first = number * sizes.updates
        searches = run.draw(
            f"{name}, {copies} copies",
            lambda n, copies=copies: study.searched(study.update(n, copies)),
            sizes.updates,
            first=first,
        )
        outcomes = [
            secret_counts(study.secrets(n), clean, search["listed"])
            for n, search in enumerate(searches, first)
        ]
        sums = {key: sum(outcome[key] for outcome in outcomes) for key in outcomes[0]}
        rows.append({"models": name, "copies": copies, **sums})
    return rows


def secret_counts(
    secrets: list[str], clean: list[list[float]], listed: list[tuple[float, str]]
) -> dict[str, int]:
    """Secrets of an update, those listed whole, and what 19 null searches call revealed."""
    nulls, words_of = NullScores.of(clean[:19]), [set(secret.split()) for secret in secrets]
    whole = [
        max((score for score, text in listed if words <= set(text.split())), default=None)
        for words in words_of
    ]
    others = [
        score
        for score, text in listed
        if all(len(words & set(text.split())) < LENGTH // 2 for words in words_of)
    ]
    return {
        "planted": len(secrets),
        "listed whole": sum(score is not None for score in whole),
        "found": sum(score is not None and bool(nulls.found(score)) for score in whole),
        "other phrases found": sum(bool(nulls.found(score)) for score in others),
    }


def percent_by_tail(clean: list[list[float]]) -> float:
    """Percent of ordered pairs of clean searches in which one exceeds the tail of the other."""
    pairs = [(update, null) for update in clean for null in clean if update is not null]
    hits = sum(max(update, default=0.0) > tail_threshold(null) for update, null in pairs)
    return 100 * hits / len(pairs)


def percent_above(clean: list[list[float]], nulls: int, draws: int = 2000) -> float:
    """Percent of clean searches above all of some others, over random draws."""
    rng, hits = np.random.default_rng(nulls), 0
    for _ in range(draws):
        update, *others = rng.permutation(len(clean))[: nulls + 1]
        scores, best = NullScores.of(clean[n] for n in others), max(clean[update], default=0.0)
        hits += best > 0 and scores.e_value(best) <= scores.least
    return 100 * hits / draws


def random_parts(corpus: Corpus, sizes: Sequence[int]) -> list[Corpus]:
    """Disjoint random documents with about as many words as each size says."""
    order = np.random.default_rng(0).permutation(len(corpus))
    lengths = np.array([len(text.split()) for text in corpus])[order]
    ends = np.searchsorted(np.cumsum(lengths), np.cumsum(sizes)) + 1
    return [corpus.take(order[first:last]) for first, last in pairwise([0, *ends])]


def without_repetitions(corpus: Corpus, *, words: int) -> Corpus:
    """Random documents with at least `words` words, no six of which in a row occurred before."""
    seen: set[tuple[str, ...]] = set()
    texts, chosen, read = list(corpus), [], 0
    for index in np.random.default_rng(1).permutation(len(corpus)):
        tokens = texts[index].lower().split()
        runs = [tuple(tokens[i : i + LENGTH]) for i in range(max(1, len(tokens) - LENGTH + 1))]
        if len(set(runs)) == len(runs) and seen.isdisjoint(runs):
            chosen.append(index)
            read += len(tokens)
        seen.update(runs)
        if read >= words:
            break
    return corpus.take(np.sort(chosen))


def options(parser: Any) -> None:
    """The text of `trained`."""
    parser.add_argument("--text", choices=TEXTS, default="irc")


PARTS = {"simulated": simulated, "trained": trained}

if __name__ == "__main__":
    main("null_calibration", __doc__, PARTS, options)
