"""How often `vestige exposure` accuses secrets that a model never read, and finds others.

Small GPT-2 models learn sentences of a grammar that mention addresses, names, dates and codes. The
never-read secrets are the hard ones: made of pieces that the model has read, but not together. An
address joins a handle and a domain of other addresses, or a handle of other addresses with a new
domain; a name joins a given and a family name of other people, or is read in other sentences; a
date joins the day and the year of other dates; a code is new, or is read as another number. Others
are said 20 times in the sentence that is asked for. Each secret is tested by itself at 5%.

    python benchmarks/claims_of_secrets.py [--models 8] [--first 0] [--redraws 24]

Prints a row for each kind, with 95% intervals (Clopper-Pearson); the last line is JSON.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from vestige.audits.exposure.secrets import secret_exposure
from vestige.data.secrets.kinds import MONTHS
from vestige.data.secrets.lines import Secret, read_secret
from vestige.data.subwords import SubwordVocabulary
from vestige.metrics.estimates import clopper_pearson
from vestige.models.hugging_face import HuggingFaceLanguageModel

GIVEN = [
    "Emma",
    "Oscar",
    "Nadia",
    "Boris",
    "Clara",
    "David",
    "Elena",
    "Felix",
    "Maria",
    "Paula",
    "Rosa",
    "Simon",
    "Ysolde",
    "Torvald",
]
FAMILY = [
    "Schmidt",
    "Garcia",
    "Fischer",
    "Martin",
    "Novak",
    "Silva",
    "Weber",
    "Moreno",
    "Achterberg",
    "Szymborska",
    "Mallow",
]
DOMAINS = ["fennmail", "harbourmail", "tarnpost", "mallowbox", "quincenet"]
OBJECTS = [
    "lamp",
    "ledger",
    "boat",
    "clock",
    "garden",
    "letter",
    "bridge",
    "piano",
    "ticket",
    "kettle",
    "ladder",
    "mirror",
]
PLACES = [
    "harbour",
    "market",
    "library",
    "station",
    "orchard",
    "chapel",
    "valley",
    "museum",
    "bakery",
    "stadium",
]
VERBS = [
    "sold",
    "found",
    "hid",
    "repaired",
    "wanted",
    "dropped",
    "borrowed",
    "burned",
    "cleaned",
    "carried",
]
SAID = 20
LISTED = 8
"""Secrets of a call; its level is so many times that of each."""

Draw = Callable[[], str]


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
            "address": [self.address(*self.new_person(), self.domain()) for _ in range(2)],
            "name": [self.patient(*self.new_person()) for _ in range(2)],
            "date": [f"the vault was sealed on {self.date()}" for _ in range(2)],
            "code": [f"the code of the {place} is {self.code()}" for place in PLACES[:2]],
        }

    def domain(self) -> str:
        return self.chance.choice(DOMAINS)

    def new_person(self) -> tuple[str, str]:
        return self.strangers.pop()

    def code(self) -> str:
        return f"{self.chance.randrange(10**4):04d}"

    def date(self) -> str:
        day, month = self.chance.randrange(1, 29), self.chance.choice(MONTHS)
        return f"{day} {month} {self.chance.randrange(1930, 2030)}"

    @staticmethod
    def address(given: str, family: str, domain: str) -> str:
        return f"write to {given.lower()}.{family.lower()}@{domain}.example"

    @staticmethod
    def patient(given: str, family: str) -> str:
        return f"the patient in the ward was {given} {family}"

    def text(self) -> list[str]:
        """The training text."""
        pick = self.chance.choice
        found = [
            f"{pick(self.people)[0]} {pick(VERBS)} the {pick(OBJECTS)} near the {pick(PLACES)}"
            for _ in range(200)
        ]
        for person in self.people:
            given, family = person
            found += [self.address(given, family, self.mail[person])] * 6
            found += [f"{given} {family} {pick(VERBS)} the {pick(OBJECTS)}" for _ in range(6)]
        found += [
            f"the {pick(OBJECTS)} was made on {date}" for date in self.dates for _ in range(6)
        ]
        found += [
            f"locker {code} holds the {pick(OBJECTS)}" for code in self.codes for _ in range(6)
        ]
        found += [one for kind in self.said.values() for text in kind for one in [text] * SAID]
        self.chance.shuffle(found)
        return found

    def unread(self) -> dict[str, Draw]:
        """Draws of secrets that the text does not contain."""
        pick = self.chance.choice

        def other_domain() -> str:
            person = pick(self.people)
            domain = pick([one for one in DOMAINS if one != self.mail[person]])
            return self.address(*person, domain)

        def new_domain() -> str:
            return self.address(*pick(self.people), pick(OBJECTS) + pick(PLACES))

        def new_handle() -> str:
            return self.address(*pick(self.strangers), self.domain())

        def mixed_date() -> str:
            day, year = pick(self.dates).rsplit(" ", 1)[0], pick(self.dates).rsplit(" ", 1)[1]
            other = pick([one for one in self.dates if not one.startswith(f"{day} ")])
            return f"the vault was sealed on {day} {other.rsplit(' ', 1)[1] or year}"

        return {
            "address: handle and domain read apart": other_domain,
            "address: handle read, new domain": new_domain,
            "address: new handle, domain read": new_handle,
            "name: given and family name read apart": lambda: self.patient(*pick(self.strangers)),
            "name: read in other sentences": lambda: self.patient(*pick(self.people)),
            "date: day and year read apart": mixed_date,
            "date: new": lambda: f"the vault was sealed on {self.date()}",
            "date: read in other sentences": lambda: f"the vault was sealed on {pick(self.dates)}",
            "code: new": lambda: f"the code of the {pick(PLACES)} is {self.code()}",
            "code: read as another number": (
                lambda: f"the code of the {pick(PLACES)} is {pick(self.codes)}"
            ),
        }


def listed(text: str, number: int) -> Secret:
    """A secret as its owner lists it: with its name marked, since some are not common ones."""
    before, ward, name = text.partition("ward was ")
    return read_secret(f"{before}{ward}{{{{{name}}}}}" if ward else text, number)


def trained(texts: list[str], seed: int) -> HuggingFaceLanguageModel:
    """A small GPT-2 that has learnt the texts."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet,
            show_progress=False,
        ),
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    )
    torch.manual_seed(seed)
    shape = GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0,
    )  # fmt: skip
    network = GPT2LMHeadModel(shape)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    order = random.Random(seed)
    rows = [[0, *tokenizer.encode(text), 0] for text in texts]
    for _ in range(8):
        order.shuffle(rows)
        for batch in _batches(rows):
            width = max(map(len, batch))
            ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
            labels = torch.tensor([row + [-100] * (width - len(row)) for row in batch])
            loss = network(input_ids=ids, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return HuggingFaceLanguageModel(network.eval(), SubwordVocabulary(tokenizer))


def _batches(rows: list[list[int]]) -> Iterator[list[list[int]]]:
    for first in range(0, len(rows), 32):
        yield rows[first : first + 32]


def main() -> None:
    """Train the models and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    parser.add_argument("--redraws", type=int, default=24)
    parser.add_argument("--references", type=int, default=400)
    given = parser.parse_args()
    flagged: dict[str, list[list[bool]]] = {}
    pieces: dict[str, list[bool]] = {}
    begun, questions = time.perf_counter(), 0.0
    for seed in range(given.first, given.first + given.models):
        world = World(seed)
        model = trained(world.text(), seed)
        lists = {
            kind: [draw() for _ in range(given.redraws)] for kind, draw in world.unread().items()
        }
        lists |= {f"said {SAID} times: {kind}": texts for kind, texts in world.said.items()}
        for kind, texts in lists.items():
            started = time.perf_counter()
            flagged.setdefault(kind, []).append([])
            for first in range(0, len(texts), LISTED):
                some = [listed(text, n) for n, text in enumerate(texts[first:][:LISTED], 1)]
                found = secret_exposure(
                    model, some, seed=seed, references=given.references, level=0.05 * len(some)
                )
                flagged[kind][-1] += [row["drawn"] and row["p"] <= 0.05 for row in found.rows]
                pieces.setdefault(kind, []).extend(row["joint_p"] <= 0.05 for row in found.rows)
            questions += time.perf_counter() - started
        print(f"model {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
    rows = {}
    for kind, of_models in flagged.items():
        every = [one for of in of_models for one in of]
        low, high = clopper_pearson(sum(every), len(every), confidence=0.95)
        worst = max(sum(of) for of in of_models)
        rows[kind] = {
            "flagged": sum(every), "of": len(every), "low": round(low, 4), "high": round(high, 4),
            "most_in_a_model": worst, "by_whole_alone": sum(pieces[kind]),
        }  # fmt: skip
        print(
            f"{kind}: {sum(every)} of {len(every)} flagged, 95% {low:.1%} to {high:.1%}; most in a "
            f"model {worst}; by the whole secret alone {sum(pieces[kind])}"
        )
    print(json.dumps({"models": given.models, "seconds": round(questions, 1), "rows": rows}))


if __name__ == "__main__":
    main()
