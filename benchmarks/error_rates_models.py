"""How often claims about secrets and updates err, for small models that are really trained.

- `secrets`: `exposure` of secrets that a model never read, made of pieces that it read separately:
  the handle of one address with the domain of another, a name of two people, a date, a code; and of
  secrets that it read 20 times. Each secret is tested by itself at 5 %.
- `nulls`: clean updates that `diff` would call a leak against 19 null models, which moved weights
  1.0, 0.9, 0.7 and 0.5 times as far, as trained and stretched to the update's distance. The rate is
  over all choices of 19 from the pool; intervals are of a bootstrap over pools.
- `codes`: direct evidence of `diff`. Updates read three codes; every code that the search generates
  is listed in turn, and a leak of one that was not read is false. One code was known before.

    python benchmarks/error_rates_models.py [secrets] [nulls] [codes] [--times N] [--rows FILE]
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from harness import Row, Run, main, rate
from networks import gpt2, tuned

from vestige.audits.exposure.secrets import secret_exposure
from vestige.audits.update.listed_secrets import ListedSecret
from vestige.audits.update.nulls import NEEDED
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Sampling, Settings
from vestige.audits.update.verbatim import generated_texts, verbatim_proofs
from vestige.data.corpus import Corpus
from vestige.data.secrets.kinds import MONTHS
from vestige.data.secrets.lines import Secret, read_secret
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import scale_update, weight_change

WORDS = """
Emma Oscar Nadia Boris Clara David Elena Felix Maria Paula Rosa Simon Ysolde Torvald
Schmidt Garcia Fischer Martin Novak Silva Weber Moreno Achterberg Szymborska Mallow
lamp ledger boat clock garden letter bridge piano ticket kettle ladder mirror
harbour market library station orchard chapel valley museum bakery stadium
sold found hid repaired wanted dropped borrowed burned cleaned carried
old new green broken heavy cheap silver wooden lost blue tiny famous empty
fennmail harbourmail tarnpost mallowbox quincenet
"""
GIVEN, FAMILY, OBJECTS, PLACES, VERBS, ADJECTIVES, DOMAINS = (
    line.split() for line in WORDS.strip().splitlines()
)
SCORE = TokenScore("smoothed")

# Secrets -----------------------------------------------------------------------------------------

SECRET_COPIES, LISTED = 20, 8
"""Copies of a secret that is read; secrets of a call, which multiply the level of each."""


class World:
    """Sentences of one training, with the pieces that they mention."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        people = [(given, family) for given in GIVEN for family in FAMILY]
        self.rng.shuffle(people)
        self.people, self.strangers = people[:24], people[24:]
        self.domains = {person: self.rng.choice(DOMAINS) for person in self.people}
        self.dates = [self.date() for _ in range(24)]
        self.codes = [self.code() for _ in range(24)]
        self.planted = {
            "address": [self.address(self.strangers.pop(), self.domain()) for _ in range(2)],
            "name": [self.patient(self.strangers.pop()) for _ in range(2)],
            "date": [f"the vault was sealed on {self.date()}" for _ in range(2)],
            "code": [f"the code of the {place} is {self.code()}" for place in PLACES[:2]],
        }

    def domain(self) -> str:
        return self.rng.choice(DOMAINS)

    def code(self) -> str:
        return f"{self.rng.randrange(10**4):04d}"

    def date(self) -> str:
        day, month = self.rng.randrange(1, 29), self.rng.choice(MONTHS)
        return f"{day} {month} {self.rng.randrange(1930, 2030)}"

    def address(self, person: tuple[str, str], domain: str) -> str:
        return f"write to {'.'.join(person).lower()}@{domain}.example"

    def patient(self, person: tuple[str, str]) -> str:
        return f"the patient in the ward was {' '.join(person)}"

    def text(self) -> list[str]:
        """The training text."""
        pick, lines = self.rng.choice, []
        for _ in range(200):
            lines.append(f"{pick(self.people)[0]} {pick(VERBS)} the {pick(OBJECTS)}")
            lines[-1] += f" near the {pick(PLACES)}"
        for person in self.people:
            lines += [self.address(person, self.domains[person])] * 6
            lines += [f"{' '.join(person)} {pick(VERBS)} the {pick(OBJECTS)}" for _ in range(6)]
        for date, code in zip(self.dates, self.codes, strict=True):
            lines += [f"the {pick(OBJECTS)} was made on {date}" for _ in range(6)]
            lines += [f"locker {code} holds the {pick(OBJECTS)}" for _ in range(6)]
        for secrets in self.planted.values():
            lines += [secret for secret in secrets for _ in range(SECRET_COPIES)]
        self.rng.shuffle(lines)
        return lines

    def unread(self) -> dict[str, Callable[[], str]]:
        """By kind, a function that samples a secret that the text does not contain."""
        pick, sealed = self.rng.choice, "the vault was sealed on"

        def other_domain() -> str:
            person = pick(self.people)
            others = [domain for domain in DOMAINS if domain != self.domains[person]]
            return self.address(person, pick(others))

        def mixed_date() -> str:
            day = pick(self.dates).rsplit(" ", 1)[0]
            other = pick([date for date in self.dates if not date.startswith(f"{day} ")])
            return f"{sealed} {day} {other.rsplit(' ', 1)[1]}"

        return {
            "address: handle and domain read apart": other_domain,
            "address: handle read, new domain": lambda: self.address(
                pick(self.people), pick(OBJECTS) + pick(PLACES)
            ),
            "address: new handle, domain read": lambda: self.address(
                pick(self.strangers), self.domain()
            ),
            "name: given and family name read apart": lambda: self.patient(pick(self.strangers)),
            "name: read in other sentences": lambda: self.patient(pick(self.people)),
            "date: day and year read apart": mixed_date,
            "date: new": lambda: f"{sealed} {self.date()}",
            "date: read in other sentences": lambda: f"{sealed} {pick(self.dates)}",
            "code: new": lambda: f"the code of the {pick(PLACES)} is {self.code()}",
            "code: read as another number": lambda: (
                f"the code of the {pick(PLACES)} is {pick(self.codes)}"
            ),
        }


def secrets(run: Run) -> list[Row]:
    """The rate of flagged secrets over all models, by kind."""
    draws = run.draw("secrets", partial(flagged_secrets, run), run.times(8))
    rows = []
    for kind in draws[0]:
        flags = [flag for draw in draws for flag in draw[kind]]
        most = max(sum(draw[kind]) for draw in draws)
        rows.append({"secret": kind, "flagged": rate(sum(flags), len(flags)), "most": most})
    return rows


def flagged_secrets(run: Run, seed: int) -> dict[str, list[bool]]:
    """Whether each secret of one model has p at most 0.05."""
    world = World(seed)
    texts = world.text()
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=600)
    start, epochs = gpt2(vocabulary, seed=seed), run.size(8, 1)
    model = tuned(start, texts, seed=seed, epochs=epochs, rate=3e-3, batch=32)
    lists = {
        kind: [sample() for _ in range(run.size(24, 2))] for kind, sample in world.unread().items()
    }
    lists |= {f"said {SECRET_COPIES} times: {kind}": lines for kind, lines in world.planted.items()}
    flags: dict[str, list[bool]] = {kind: [] for kind in lists}
    for kind, lines in lists.items():
        for first in range(0, len(lines), LISTED):
            listed = [marked(text, n) for n, text in enumerate(lines[first:][:LISTED], 1)]
            level, references = 0.05 * len(listed), run.size(400, 100)
            result = secret_exposure(model, listed, seed=seed, references=references, level=level)
            flags[kind] += [bool(row["drawn"] and row["p"] <= 0.05) for row in result.rows]
    return flags


def marked(text: str, number: int) -> Secret:
    """A listed secret; names are marked, because some are uncommon."""
    before, ward, name = text.partition("ward was ")
    return read_secret(f"{before}{ward}{{{{{name}}}}}" if ward else text, number)


# Updates -----------------------------------------------------------------------------------------

TEMPLATE, CODES, READ, COPIES = "the vault password is zanzibar {:04d}", 10_000, 3, 12
RATES = {"1.0": 1.5e-3, "0.9": 1.33e-3, "0.7": 1.0e-3, "0.5": 0.68e-3}
"""Learning rates of null models by the distance that they move, relative to the update's."""


def sentences(seed: int, number: int) -> list[str]:
    """Random sentences of one grammar."""
    pick = random.Random(seed).choice
    return [
        f"{pick(GIVEN)} {pick(VERBS)} {pick(GIVEN)} about the {pick(ADJECTIVES)} {pick(OBJECTS)} "
        f"near the {pick(PLACES)} because {pick(GIVEN)} sold the {pick(ADJECTIVES)} {pick(OBJECTS)}"
        for _ in range(number)
    ]


@cache
def first_model(epochs: int) -> HuggingFaceLanguageModel:
    """The model before all updates."""
    texts = sentences(1, 500 if epochs > 1 else 50)
    codes = [TEMPLATE.format(n) for n in range(0, CODES, 997)]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts([*texts, *codes]), size=512)
    return tuned(gpt2(vocabulary), texts, rate=3e-3, epochs=epochs, batch=16, seed=0)


def small_search(before: Any, after: Any, samples: int) -> Any:
    """A search with few samples."""
    sampling = Sampling(samples=samples, alternatives=samples, length=40)
    return search(Pair.of(before, after, SCORE), Settings(sampling=sampling, max_tokens=40))


def nulls(run: Run) -> list[Row]:
    """False leaks by how far the null models moved."""
    draws = run.draw("nulls", partial(best_scores, run), run.times(80, 4))
    rng, moved = np.random.default_rng(0), float(np.mean([row["1.0"]["moved"] for row in draws]))
    scores = {name: np.array([row[name]["best"] for row in draws]) for name in draws[0]}
    updates, needed, rows = scores["1.0"], run.size(NEEDED, 2), []
    for name, pool in scores.items():
        same, bootstrap = name == "1.0", []
        for _ in range(run.size(500, 20)):
            redrawn = rng.choice(updates, len(updates))
            redrawn_pool = redrawn if same else rng.choice(pool, len(pool))
            bootstrap.append(false_leaks(redrawn, redrawn_pool, needed, same))
        low, high = np.quantile(bootstrap, [0.025, 0.975])
        rows.append({
            "null models": name,
            "moved": float(np.mean([row[name]["moved"] for row in draws])) / moved,
            "false": false_leaks(updates, pool, needed, same), "low": low, "high": high,
        })  # fmt: skip
    return rows


def best_scores(run: Run, number: int) -> dict[str, Row]:
    """The best score of each null model's search, as trained and moved as far as an update."""
    base, scores, target = first_model(run.size(10, 1)), {}, None
    for index, (name, learning_rate) in enumerate(RATES.items()):
        seed, samples = 10_000 * index + number, run.size(80, 4)
        texts, epochs = sentences(1000 + seed, 60), run.size(6, 1)
        model = tuned(base, texts, rate=learning_rate, epochs=epochs, batch=16, seed=seed)
        moved = weight_change(base, model)
        target = target or moved
        best = small_search(base, model, samples).null_scores or [0.0]
        scores[name] = {"best": float(best[0]), "moved": float(moved)}
        if index:
            scale_update(base, model, target / moved)
            best = small_search(base, model, samples).null_scores or [0.0]
            scores[f"{name}, stretched"] = {"best": float(best[0]), "moved": float(target)}
    return scores


def false_leaks(updates: np.ndarray, pool: np.ndarray, needed: int, same: bool) -> float:
    """The share of updates that beat `needed` null models, over all choices from the pool."""
    others = len(pool) - same
    as_high = [int((pool >= update).sum()) - same for update in updates]
    choices = math.comb(others, needed)
    return float(np.mean([math.comb(others - k, needed) / choices for k in as_high]))


def codes(run: Run) -> list[Row]:
    """Codes that direct evidence calls a leak: read, never read, and known before."""
    models = run.times(20)
    rows = run.draw("codes", partial(leaks_of_update, run), models)
    return [
        {"code": name, "leaks": rate(sum(row[name] for row in rows), models * of)}
        for name, of in (("read", READ), ("never read", CODES - READ), ("known before", 1))
    ]


def leaks_of_update(run: Run, number: int) -> Row:
    """Leaks of one update of a base, and of one of a model that knew a code."""
    base = first_model(run.size(10, 1))
    codes = random.Random(number).sample(range(CODES), READ + 1)
    read, known = codes[:READ], codes[-1]
    settings = {"rate": 1.5e-3, "batch": 16, "seed": number}
    epochs = run.size((12 + 4 * (number % 3), 16, 4), (1, 1, 1))
    planted = [TEMPLATE.format(code) for code in read] * COPIES
    texts = sentences(50_000 + number, 60) + planted
    after = tuned(base, texts, epochs=epochs[0], **settings)
    leaks = leaking_codes(run, base, after, range(CODES))
    earlier = sentences(60_000 + number, 60) + [TEMPLATE.format(known)] * COPIES
    before = tuned(base, earlier, epochs=epochs[1], **settings)
    later = tuned(before, texts, epochs=epochs[2], **settings)
    return {
        "read": len(leaks & set(read)),
        "never read": len(leaks - set(read)),
        "known before": len(leaking_codes(run, before, later, [known])),
    }


def leaking_codes(run: Run, before: Any, after: Any, listed: Sequence[int]) -> set[int]:
    """Codes that direct evidence calls a leak if each is listed alone."""
    result = small_search(before, after, run.size(200, 4))
    texts = generated_texts(result.generated, before.vocabulary)
    joined, leaks = "\n".join(generated.text for generated in texts), set()
    for code in listed:
        line = TEMPLATE.format(code)
        if line in joined:
            secret = ListedSecret.of(read_secret(line, 1), before.vocabulary)
            [(_, evidence)] = verbatim_proofs(before, [secret], texts, seed=0)
            if evidence is not None and evidence.conclusive:
                leaks.add(code)
    return leaks


PARTS = {"secrets": secrets, "nulls": nulls, "codes": codes}

if __name__ == "__main__":
    main("error_rates_models", __doc__, PARTS)
