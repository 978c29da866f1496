"""How often claims about secrets and updates err, of small models that are really trained.

- `secrets`: `exposure` of secrets that a model never read, made of pieces that it read apart: an
  address of another address's handle and domain, a name of two other people, a date, a code; and
  of secrets that it read 20 times. Each secret is tested by itself at 5 %.
- `nulls`: clean updates that `diff` would call a leak beside 19 null models, which moved weights
  1.0, 0.9, 0.7 and 0.5 times as far, as trained and stretched to the update's distance. The rate is
  over all ways to draw 19 from the pool; intervals are of a bootstrap over pools.
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
GIVEN, FAMILY, OBJECTS, PLACES, VERBS, KINDS, DOMAINS = (
    line.split() for line in WORDS.strip().splitlines()
)
SCORE = TokenScore("smoothed")

# Secrets -----------------------------------------------------------------------------------------

SAID, LISTED = 20, 8
"""Copies of a secret that is read; secrets of a call, whose level is so many times that of each."""


class World:
    """Sentences of one training, with the pieces that it mentions."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        people = [(given, family) for given in GIVEN for family in FAMILY]
        self.chance.shuffle(people)
        self.people, self.strangers = people[:24], people[24:]
        self.mail = {person: self.chance.choice(DOMAINS) for person in self.people}
        self.dates = [self.date() for _ in range(24)]
        self.codes = [self.code() for _ in range(24)]
        self.said = {
            "address": [self.address(self.strangers.pop(), self.domain()) for _ in range(2)],
            "name": [self.patient(self.strangers.pop()) for _ in range(2)],
            "date": [f"the vault was sealed on {self.date()}" for _ in range(2)],
            "code": [f"the code of the {place} is {self.code()}" for place in PLACES[:2]],
        }

    def domain(self) -> str:
        return self.chance.choice(DOMAINS)

    def code(self) -> str:
        return f"{self.chance.randrange(10**4):04d}"

    def date(self) -> str:
        day, month = self.chance.randrange(1, 29), self.chance.choice(MONTHS)
        return f"{day} {month} {self.chance.randrange(1930, 2030)}"

    def address(self, person: tuple[str, str], domain: str) -> str:
        return f"write to {'.'.join(person).lower()}@{domain}.example"

    def patient(self, person: tuple[str, str]) -> str:
        return f"the patient in the ward was {' '.join(person)}"

    def text(self) -> list[str]:
        """The training text."""
        pick, found = self.chance.choice, []
        for _ in range(200):
            found.append(f"{pick(self.people)[0]} {pick(VERBS)} the {pick(OBJECTS)}")
            found[-1] += f" near the {pick(PLACES)}"
        for person in self.people:
            found += [self.address(person, self.mail[person])] * 6
            found += [f"{' '.join(person)} {pick(VERBS)} the {pick(OBJECTS)}" for _ in range(6)]
        for date, code in zip(self.dates, self.codes, strict=True):
            found += [f"the {pick(OBJECTS)} was made on {date}" for _ in range(6)]
            found += [f"locker {code} holds the {pick(OBJECTS)}" for _ in range(6)]
        found += [text for own in self.said.values() for text in own for _ in range(SAID)]
        self.chance.shuffle(found)
        return found

    def unread(self) -> dict[str, Callable[[], str]]:
        """Draws of secrets that the text does not contain."""
        pick, sealed = self.chance.choice, "the vault was sealed on"

        def other_domain() -> str:
            person = pick(self.people)
            others = [one for one in DOMAINS if one != self.mail[person]]
            return self.address(person, pick(others))

        def mixed_date() -> str:
            day = pick(self.dates).rsplit(" ", 1)[0]
            other = pick([one for one in self.dates if not one.startswith(f"{day} ")])
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
    """Secrets that are flagged, over all models, by what they are made of."""
    rows = run.draw("secrets", partial(flagged_secrets, run), range(run.times(8)))
    told = []
    for kind in rows[0]:
        every = [flag for row in rows for flag in row[kind]]
        most = max(sum(row[kind]) for row in rows)
        told.append({"secret": kind, "flagged": rate(sum(every), len(every)), "most": most})
    return told


def flagged_secrets(run: Run, seed: int) -> dict[str, list[bool]]:
    """Of one model, whether each secret has p at most 0.05."""
    world = World(seed)
    texts = world.text()
    words = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=600)
    how = {"epochs": run.size(8, 1), "rate": 3e-3, "batch": 32}
    model = tuned(gpt2(words, seed=seed), texts, seed=seed, **how)
    lists = {
        kind: [draw() for _ in range(run.size(24, 2))] for kind, draw in world.unread().items()
    }
    lists |= {f"said {SAID} times: {kind}": own for kind, own in world.said.items()}
    found: dict[str, list[bool]] = {}
    for kind, own in lists.items():
        found[kind] = []
        for first in range(0, len(own), LISTED):
            some = [listed(text, n) for n, text in enumerate(own[first:][:LISTED], 1)]
            level, references = 0.05 * len(some), run.size(400, 100)
            told = secret_exposure(model, some, seed=seed, references=references, level=level)
            found[kind] += [bool(row["drawn"] and row["p"] <= 0.05) for row in told.rows]
    return found


def listed(text: str, number: int) -> Secret:
    """A secret as its owner lists it: with its name marked, since some names are not common."""
    before, ward, name = text.partition("ward was ")
    return read_secret(f"{before}{ward}{{{{{name}}}}}" if ward else text, number)


# Updates -----------------------------------------------------------------------------------------

TEMPLATE, CODES, READ, COPIES = "the vault password is zanzibar {:04d}", 10_000, 3, 12
RATES = {"1.0": 1.5e-3, "0.9": 1.33e-3, "0.7": 1.0e-3, "0.5": 0.68e-3}
"""Learning rates of null models, by how far they move relative to the update."""


def sentences(seed: int, number: int) -> list[str]:
    """Of one grammar."""
    one = random.Random(seed).choice
    return [
        f"{one(GIVEN)} {one(VERBS)} {one(GIVEN)} about the {one(KINDS)} {one(OBJECTS)} near the "
        f"{one(PLACES)} because {one(GIVEN)} sold the {one(KINDS)} {one(OBJECTS)}"
        for _ in range(number)
    ]


@cache
def first_model(epochs: int) -> HuggingFaceLanguageModel:
    """The model before all updates."""
    texts = sentences(1, 500 if epochs > 1 else 50)
    codes = [TEMPLATE.format(n) for n in range(0, CODES, 997)]
    words = SubwordVocabulary.train_bpe(Corpus.from_texts([*texts, *codes]), size=512)
    return tuned(gpt2(words), texts, rate=3e-3, epochs=epochs, batch=16, seed=0)


def searched(before: Any, after: Any, samples: int) -> Any:
    """A small search."""
    sampling = Sampling(samples=samples, alternatives=samples, length=40)
    return search(Pair.of(before, after, SCORE), Settings(sampling=sampling, max_tokens=40))


def nulls(run: Run) -> list[Row]:
    """False leaks by how far the null models moved."""
    rows = run.draw("nulls", partial(best_scores, run), range(run.times(80, 4)))
    lot, moved = np.random.default_rng(0), float(np.mean([row["1.0"]["moved"] for row in rows]))
    scores = {name: np.array([row[name]["best"] for row in rows]) for name in rows[0]}
    updates, needed, told = scores["1.0"], run.size(NEEDED, 2), []
    for name, pool in scores.items():
        same, again = name == "1.0", []
        for _ in range(run.size(500, 20)):
            own = lot.choice(updates, len(updates))
            again.append(
                false_leaks(own, own if same else lot.choice(pool, len(pool)), needed, same)
            )
        low, high = np.quantile(again, [0.025, 0.975])
        told.append({
            "null models": name,
            "moved": float(np.mean([row[name]["moved"] for row in rows])) / moved,
            "false": false_leaks(updates, pool, needed, same), "low": low, "high": high,
        })  # fmt: skip
    return told


def best_scores(run: Run, number: int) -> dict[str, Row]:
    """The best score of a search of each null model, as trained and moved as far as an update."""
    base, found, target = first_model(run.size(10, 1)), {}, None
    for place, (name, learning) in enumerate(RATES.items()):
        own, samples = 10_000 * place + number, run.size(80, 4)
        texts = sentences(1000 + own, 60)
        model = tuned(base, texts, rate=learning, epochs=run.size(6, 1), batch=16, seed=own)
        moved = weight_change(base, model)
        target = target or moved
        best = searched(base, model, samples).null_scores or [0.0]
        found[name] = {"best": float(best[0]), "moved": float(moved)}
        if place:
            scale_update(base, model, target / moved)
            best = searched(base, model, samples).null_scores or [0.0]
            found[f"{name}, stretched"] = {"best": float(best[0]), "moved": float(target)}
    return found


def false_leaks(updates: np.ndarray, pool: np.ndarray, needed: int, same: bool) -> float:
    """Share of updates that beat so many null models, over all ways to draw these."""
    others = len(pool) - same
    beaten = [int((pool >= one).sum()) - same for one in updates]
    ways = math.comb(others, needed)
    return float(np.mean([math.comb(others - k, needed) / ways for k in beaten]))


def codes(run: Run) -> list[Row]:
    """Codes that direct evidence calls a leak: read, never read, and known before."""
    rows, models = run.draw("codes", partial(of_codes, run), range(run.times(20))), run.times(20)
    return [
        {"code": name, "leaks": rate(sum(row[name] for row in rows), models * of)}
        for name, of in (("read", READ), ("never read", CODES - READ), ("known before", 1))
    ]


def of_codes(run: Run, number: int) -> Row:
    """Of one update of a base, and of one of a model that knew a code."""
    base, lot = first_model(run.size(10, 1)), random.Random(number)
    drawn = lot.sample(range(CODES), READ + 1)
    how = {"rate": 1.5e-3, "batch": 16, "seed": number}
    epochs = run.size((12 + 4 * (number % 3), 16, 4), (1, 1, 1))
    said = [TEMPLATE.format(code) for code in drawn[:READ]] * COPIES
    texts = sentences(50_000 + number, 60) + said
    after = tuned(base, texts, epochs=epochs[0], **how)
    leaks = leaking_codes(run, base, after, range(CODES))
    known = sentences(60_000 + number, 60) + [TEMPLATE.format(drawn[-1])] * COPIES
    before = tuned(base, known, epochs=epochs[1], **how)
    later = tuned(before, texts, epochs=epochs[2], **how)
    return {
        "read": len(leaks & set(drawn[:READ])),
        "never read": len(leaks - set(drawn[:READ])),
        "known before": len(leaking_codes(run, before, later, [drawn[-1]])),
    }


def leaking_codes(run: Run, before: Any, after: Any, listed: Sequence[int]) -> set[int]:
    """Codes that direct evidence calls a leak, each listed alone."""
    texts = generated_texts(searched(before, after, run.size(200, 4)).generated, before.vocabulary)
    joined, leaks = "\n".join(generated.text for generated in texts), set()
    for code in listed:
        line = TEMPLATE.format(code)
        if line in joined:
            asked = ListedSecret.of(read_secret(line, 1), before.vocabulary)
            [(_, proof)] = verbatim_proofs(before, [asked], texts, seed=0)
            if proof is not None and proof.conclusive:
                leaks.add(code)
    return leaks


PARTS = {"secrets": secrets, "nulls": nulls, "codes": codes}

if __name__ == "__main__":
    main("error_rates_models", __doc__, PARTS)
