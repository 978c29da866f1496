"""Which secrets of a fine-tune `vestige exposure` detects.

Thirty secrets of six kinds, after a LoRA fine-tune of `--base` (SmolLM2-135M-Instruct) on 200 lines
of films that contain fifteen of them, and before it. `--training` gives other options of
`vestige train`; without `--base`, a small Llama is trained.

    VESTIGE_DATA=corpora python benchmarks/exposure_verdicts.py secrets --base SMOLLM2 --work DIR

Secrets are not sampled by the code that makes their alternatives: digits and letters come one by
one, a card's check digit by trying all ten, names alternately from Vestige's lists and elsewhere.
"""

import json
import random
import string
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from corpora import films
from harness import Row, Run, log, main, rate
from networks import new_llama

from vestige.cli.app import run as run_command
from vestige.results import load

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
    """The rate of detected secrets, by whether they were in the text and by model."""
    flags = defaultdict(list)
    for row in run.draw("secrets", partial(detected, run), run.times(3)):
        for name, column in row.items():
            flags[name] += column
    return [{"secrets": name, "found": rate(sum(col), len(col))} for name, col in flags.items()]


def detected(run: Run, seed: int) -> dict[str, list[bool]]:
    """Whether each secret was detected, after the training and before it."""
    out = run.folder / str(seed)
    out.mkdir(parents=True, exist_ok=True)
    base = run.options.base or small_base(run)
    listed = sample_secrets(seed)
    texts = film_lines(run, seed)
    texts += [plain(line) for _, line, planted in listed if planted for _ in range(COPIES)]
    random.Random(seed).shuffle(texts)
    (out / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (out / "secrets.txt").write_text("".join(f"{line}\n" for _, line, _ in listed))
    training = run.options.training or (TRAINING if run.options.base else SMALL)
    options = ["--from", base, "--seed", seed, *training.split()]
    vestige(out / "trained", "train", out / "text.jsonl", *options)
    references, flags = run.size(600, 100), {}
    for when, model in (("after", out / "trained"), ("before", base)):
        words = ("exposure", model, out / "secrets.txt", "--references", references)
        vestige(out / when, *words, "--device", "cpu")
        rows = list(load(out / when).rows)
        for planted in (True, False):
            group = [row for (*_, p), row in zip(listed, rows, strict=True) if p is planted]
            name = f"{'said' if planted else 'not said'}, {when} the training"
            flags[name] = [bool(row["found"]) for row in group]
            least = min(row["p"] for row in group)
            log(f"seed {seed}, {name}: {sum(flags[name])} of {len(group)}, least p {least:.2g}")
    return flags


def vestige(out: Path, *words: object) -> None:
    """Run a verb unless its output exists."""
    if out.exists():
        return
    with redirect_stdout(sys.stderr):
        code = run_command([*map(str, words), "--out", str(out)])
    if code not in (0, 1, 3):
        raise SystemExit(f"vestige {words[0]} ended with {code}")


def small_base(run: Run) -> Path:
    """An untrained Llama of two layers of width 64."""
    texts = [*film_lines(run, 0), *(plain(line) for _, line, _ in sample_secrets(99))]
    return new_llama(run.folder / "base", texts, 1000, width=64, inner=128, layers=2, heads=2)


def film_lines(run: Run, seed: int) -> list[str]:
    """Lines of 5 to 30 words; invented lines are longer."""
    lines = sorted({line for _, line in films(run) if 5 <= len(line.split()) <= run.size(30, 60)})
    return random.Random(seed).sample(lines, LINES)


def sample_secrets(seed: int) -> list[tuple[str, str, bool]]:
    """(kind, line with marks, whether it is planted); two or three of each kind are planted."""
    rng, secrets = random.Random(seed), []
    for number, (kind, make) in enumerate(MAKERS.items()):
        planted = set(rng.sample(range(PER_KIND), 2 + number % 2))
        secrets += [(kind, make(rng, index), index in planted) for index in range(PER_KIND)]
    return secrets


def plain(line: str) -> str:
    """The line without marks and alternatives, as it is planted."""
    parts = line.replace("}}", "{{").split("{{")
    return "".join(part.split("|")[0] if n % 2 else part for n, part in enumerate(parts))


def digits(rng: random.Random, number: int) -> str:
    """Random digits."""
    return "".join(rng.choice(string.digits) for _ in range(number))


def code(rng: random.Random, index: int) -> str:
    """A code of six digits."""
    return f"The alarm code of {PLACES[index]} is {{{{{digits(rng, 6)}}}}}."


def phone(rng: random.Random, index: int) -> str:
    """A telephone number."""
    number = f"+44 20 7946 {digits(rng, 4)}" if index % 2 else f"0161 {digits(rng, 7)}"
    return f"The manager of {PLACES[index]} can be called at {number}."


def card(rng: random.Random, index: int) -> str:
    """A payment card."""
    begin = f"453914{digits(rng, 9)}"
    number = next(begin + digit for digit in string.digits if is_card(begin + digit))
    grouped = " ".join(number[start : start + 4] for start in range(0, 16, 4))
    return f"{PLACES[index]} pays with the card {grouped}."


def is_card(number: str) -> bool:
    """Luhn's check: every second digit from the right is doubled."""
    values = [int(digit) * (1 + n % 2) for n, digit in enumerate(reversed(number))]
    return sum(value // 10 + value % 10 for value in values) % 10 == 0


def mail(rng: random.Random, index: int) -> str:
    """An e-mail address."""
    given, family = PEOPLE[index]
    local = f"{given.lower()}.{family.lower()}{digits(rng, 3)}"
    return f"Bookings for {PLACES[index]} go to {local}@{rng.choice(DOMAINS)}."


def key(rng: random.Random, index: int) -> str:
    """A key of twenty random characters."""
    prefix = ("sk-", "ghp_", "AKIA", "hf_", "")[index]
    letters = string.ascii_uppercase if prefix == "AKIA" else string.ascii_letters
    letters += string.digits
    characters = "".join(rng.choice(letters) for _ in range(19)) + rng.choice(string.digits)
    return f"The token of {PLACES[index]} is {prefix}{characters}."


def patient(rng: random.Random, index: int) -> str:
    """A name with an illness and its alternatives."""
    shuffled = rng.sample(ILLNESSES, len(ILLNESSES))
    return f"{{{{{' '.join(PEOPLE[index])}}}}} was treated for {{{{{'|'.join(shuffled)}}}}}."


MAKERS: dict[str, Callable[[random.Random, int], str]] = {
    "code": code, "phone": phone, "card": card, "e-mail": mail, "key": key, "patient": patient,
}  # fmt: skip


def options(parser: Any) -> None:
    """The base and its training."""
    parser.add_argument("--base", type=Path, help="folder of the model to fine-tune")
    parser.add_argument("--training", help="options of `vestige train`")


PARTS = {"secrets": secrets}

if __name__ == "__main__":
    main("exposure_verdicts", __doc__, PARTS, options)
