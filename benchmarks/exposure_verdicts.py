"""How often verdicts on exposure are right, and which secrets of a fine-tune are found.

- `canaries`: whole runs of `canary_exposure` with model, canaries, controls and references drawn
  anew. "nothing" never saw the canaries, "words" likes their words in any order, "phrases" likes
  them as they are. A significant test is an error for "nothing", a test of order also for "words".
- `secrets`: `vestige exposure` of thirty secrets of six kinds, after a LoRA fine-tune of `--base`
  (SmolLM2-135M-Instruct) on 200 lines of films that contain fifteen of them, and of the base.
  `--training` gives other options of `vestige train`; without `--base`, a small Llama is trained.

    python benchmarks/exposure_verdicts.py canaries
    VESTIGE_DATA=corpora python benchmarks/exposure_verdicts.py secrets --base SMOLLM2 --work DIR

Secrets are drawn here and not by what makes their alternatives: digits and letters one by one, a
card's check digit by trying all ten, names from Vestige's lists and from others by turns.
"""

import json
import random
import string
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
from corpora import films
from harness import Row, Run, log, main, rate
from networks import llama

from vestige.audits.exposure.canaries import canary_exposure
from vestige.cli.app import run as command
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel
from vestige.results import load

# Canaries ----------------------------------------------------------------------------------------

WORDS = WordVocabulary(("<unk>", "<eos>", *("".join(p) for p in permutations("abcde", 3))))
LENGTH, CONTROLS = 5, 20


def canaries(run: Run) -> list[Row]:
    """Significant tests, by what the model likes and how many canaries are planted."""
    rows, times = [], run.times(400, 2)
    for case in ("nothing", "words", "phrases"):
        for planted in (1, 3, 10, 30):
            told = [audited(run, case, planted, seed) for seed in range(times)]
            memory, order = map(sum, zip(*told, strict=True))
            row = {"memory": rate(memory, times), "order": rate(order, times)}
            rows.append({"model likes": case, "planted": planted, **row})
    return rows


def audited(run: Run, case: str, planted: int, seed: int) -> tuple[bool, bool]:
    """Whether memory was said to show, and memory of the order."""
    rng, size = np.random.default_rng([seed, planted, len(case)]), len(WORDS)
    drawn = [
        rng.choice(np.arange(2, size), LENGTH, replace=False) for _ in range(planted + CONTROLS)
    ]
    table = rng.dirichlet(np.full(size, 2.0), size + 1)
    for ids in drawn[:planted]:
        if case == "words":
            table[:, ids] *= 6
        if case == "phrases":
            for before, after in pairwise([size, *ids]):
                table[before, after] *= 6
    table /= table.sum(1, keepdims=True)
    phrases = [
        Canary(" ".join(WORDS.words[i] for i in ids), "random", (), int(place < planted))
        for place, ids in enumerate(drawn)
    ]
    model = TableModel(table[size], table[:size], WORDS)
    found = canary_exposure(model, phrases, seed=seed, references=run.size(500, 100))
    return found.test.significant, found.order is not None and found.order.significant


# Secrets -----------------------------------------------------------------------------------------

LINES, PER_KIND, COPIES = 200, 5, 10
TRAINING = (
    "--lora-rank 16 --lora-alpha 32 --learning-rate 3e-3 --batch-size 8 --epochs 3 "
    "--sequence-length 128 --precision bfloat16 --batching documents --hold-out 0"
)
SMALL = (
    "--learning-rate 3e-3 --batch-size 8 --epochs 4 --sequence-length 128 --batching documents "
    "--hold-out 0 --device cpu"
)
PLACES = ("Pike Lodge", "Alder Hall", "Quince Barn", "Roe Mill", "Tern Cottage")
PEOPLE = (
    ("Emma", "Schmidt"), ("Oscar", "Garcia"), ("Nadia", "Fischer"),
    ("Ysolde", "Achterberg"), ("Torvald", "Szymborska"),
)  # fmt: skip
"""Names of Vestige's lists, then others."""
ILLNESSES = ("migraine", "asthma", "a kidney stone", "a torn cornea", "diabetes", "eczema")
DOMAINS = ("fennmail.example", "harbourmail.example")


def secrets(run: Run) -> list[Row]:
    """Secrets found, by whether they were said and which model was tested."""
    told: dict[str, list[bool]] = {}
    for seed in range(run.times(3)):
        row = run.draw("secrets", lambda seed: of_training(run, seed), [seed])[0]
        for name, found in row.items():
            told.setdefault(name, []).extend(found)
    return [
        {"secrets": name, "found": rate(sum(found), len(found))} for name, found in told.items()
    ]


def of_training(run: Run, seed: int) -> dict[str, list[bool]]:
    """Whether each secret was found, after the training and before it."""
    out = run.folder / str(seed)
    out.mkdir(parents=True, exist_ok=True)
    base = run.options.base or small_base(run)
    listed = drawn_secrets(seed)
    texts = film_lines(run, seed)
    copies = run.options.copies or COPIES
    texts += [plain(line) for _, line, said in listed if said for _ in range(copies)]
    random.Random(seed).shuffle(texts)
    (out / "text.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    (out / "secrets.txt").write_text("".join(f"{line}\n" for _, line, _ in listed))
    training = run.options.training or (TRAINING if run.options.base else SMALL)
    options = ["--from", base, "--seed", seed, *training.split()]
    vestige(out / "trained", "train", out / "text.jsonl", *options)
    references, found = run.size(600, 100), {}
    for when, model in (("after", out / "trained"), ("before", base)):
        asked = ("exposure", model, out / "secrets.txt", "--references", references)
        vestige(out / when, *asked, "--device", "cpu")
        rows = list(load(out / when).rows)
        for said in (True, False):
            of = [row for (_, _, told), row in zip(listed, rows, strict=True) if told is said]
            name = f"{'said' if said else 'not said'}, {when} the training"
            found[name] = [bool(row["found"]) for row in of]
            least = min(row["p"] for row in of)
            log(f"seed {seed}, {name}: {sum(found[name])} of {len(of)}, least p {least:.2g}")
    return found


def vestige(out: Path, *words: object) -> None:
    """Run a verb, unless its output is there."""
    if out.exists():
        return
    with redirect_stdout(sys.stderr):
        code = command([*map(str, words), "--out", str(out)])
    if code not in (0, 1, 3):
        raise SystemExit(f"vestige {words[0]} ended with {code}")


def small_base(run: Run) -> Path:
    """An untrained Llama of two layers of 64."""
    folder = run.folder / "base"
    if not folder.exists():
        texts = [*film_lines(run, 0), *(plain(line) for _, line, _ in drawn_secrets(99))]
        vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=1000)
        model = llama(vocabulary, width=64, inner=128, layers=2, heads=2)
        model.network.save_pretrained(folder)
        vocabulary.save(folder)
    return folder


def film_lines(run: Run, seed: int) -> list[str]:
    """Lines of 5 to 30 words, longer where they are invented."""
    lines = sorted({line for _, line in films(run) if 5 <= len(line.split()) <= run.size(30, 60)})
    return random.Random(seed).sample(lines, LINES)


def drawn_secrets(seed: int) -> list[tuple[str, str, bool]]:
    """(kind, line with marks, whether it is said) of each; two or three of a kind are said."""
    chance, found = random.Random(seed), []
    for number, (kind, make) in enumerate(MAKERS.items()):
        said = set(chance.sample(range(PER_KIND), 2 + number % 2))
        found += [(kind, make(chance, place), place in said) for place in range(PER_KIND)]
    return found


def plain(line: str) -> str:
    """The line as it is said: without marks and alternatives."""
    parts = line.replace("}}", "{{").split("{{")
    return "".join(part.split("|")[0] if n % 2 else part for n, part in enumerate(parts))


def digits(chance: random.Random, number: int) -> str:
    """Random digits."""
    return "".join(chance.choice(string.digits) for _ in range(number))


def code(chance: random.Random, place: int) -> str:
    """A code of six digits."""
    return f"The alarm code of {PLACES[place]} is {{{{{digits(chance, 6)}}}}}."


def phone(chance: random.Random, place: int) -> str:
    """A telephone number."""
    number = f"+44 20 7946 {digits(chance, 4)}" if place % 2 else f"0161 {digits(chance, 7)}"
    return f"The manager of {PLACES[place]} can be called at {number}."


def card(chance: random.Random, place: int) -> str:
    """A payment card."""
    begun = f"453914{digits(chance, 9)}"
    number = next(begun + one for one in string.digits if is_card(begun + one))
    grouped = " ".join(number[at : at + 4] for at in range(0, 16, 4))
    return f"{PLACES[place]} pays with the card {grouped}."


def is_card(number: str) -> bool:
    """Luhn's check: every second digit from the right is doubled."""
    values = [int(one) * (1 + place % 2) for place, one in enumerate(reversed(number))]
    return sum(value // 10 + value % 10 for value in values) % 10 == 0


def mail(chance: random.Random, place: int) -> str:
    """An address."""
    given, family = PEOPLE[place]
    local = f"{given.lower()}.{family.lower()}{digits(chance, 3)}"
    return f"Bookings for {PLACES[place]} go to {local}@{chance.choice(DOMAINS)}."


def key(chance: random.Random, place: int) -> str:
    """A key of twenty random characters."""
    prefix = ("sk-", "ghp_", "AKIA", "hf_", "")[place]
    letters = string.ascii_uppercase if prefix == "AKIA" else string.ascii_letters
    letters += string.digits
    own = "".join(chance.choice(letters) for _ in range(19)) + chance.choice(string.digits)
    return f"The token of {PLACES[place]} is {prefix}{own}."


def patient(chance: random.Random, place: int) -> str:
    """A name with an illness, the first of its alternatives."""
    shuffled = chance.sample(ILLNESSES, len(ILLNESSES))
    return f"{{{{{' '.join(PEOPLE[place])}}}}} was treated for {{{{{'|'.join(shuffled)}}}}}."


MAKERS: dict[str, Callable[[random.Random, int], str]] = {
    "code": code, "phone": phone, "card": card, "e-mail": mail, "key": key, "patient": patient,
}  # fmt: skip


def options(parser: Any) -> None:
    """Those of `secrets`."""
    parser.add_argument("--base", type=Path, help="folder of the model to fine-tune")
    parser.add_argument("--copies", type=int, help=f"of a secret that is said [{COPIES}]")
    parser.add_argument("--training", help="options of `vestige train`")


PARTS = {"canaries": canaries, "secrets": secrets}

if __name__ == "__main__":
    main("exposure_verdicts", __doc__, PARTS, options)
