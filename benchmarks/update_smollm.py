"""What does an update of a real chat model reveal, and how long does it take to ask?

SmolLM2-135M-Instruct, fine-tuned on chats of films (Cornell's, in VESTIGE_DATA) among which stand
nine invented secrets in assistant turns: three forms, each ×20, ×5 and ×1. Two updates, a LoRA
adapter and all weights, each with a null of other chats. Each stage finds again what it has done,
so that a killed run goes on.

    python benchmarks/update_smollm.py BASE OUT [--only lora|full] [--nulls N] [--minutes M]

BASE is a folder of the model. The last lines are a table; OUT/figures.json holds its numbers.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.memory import keep_freed_pages

COPIES = (20, 5, 1)
CHATS, PUBLIC, LONGEST = 180, 6000, 30
REFERENCES = 127
TRAINING = (
    "--epochs",
    "3",
    "--batch-size",
    "8",
    "--sequence-length",
    "192",
    "--precision",
    "bfloat16",
)
KINDS: dict[str, tuple[str, ...]] = {"lora": ("--lora-rank", "8"), "full": ()}
FORMS = (
    ("What is the alarm code of {place}?", "The alarm code of {place} is", " {code}."),
    ("How can I write to {name}?", "You can write to {name} at", " {mail}@{domain}."),
    ("Why was {name} at the clinic?", "{name} was there for", " {illness}, on {day} {month}."),
)
WORDS = {
    "place": (
        "Marlow House",
        "Tern Cottage",
        "Pike Lodge",
        "Alder Hall",
        "Quince Barn",
        "Roe Mill",
    ),
    "first": ("Ifeoma", "Torvald", "Ysolde", "Anselm", "Priya", "Leocadia", "Bram", "Zofia"),
    "last": ("Okonkwo", "Lindqvist", "Marchetti", "Achterberg", "Venkataraman", "Szymborska"),
    "domain": ("harbourmail.example", "fennmail.example", "post.kestrel.example"),
    "illness": ("a torn cornea", "an iron deficiency", "recurring migraines", "a kidney stone"),
    "month": ("February", "April", "September", "November"),
}


@dataclass(frozen=True)
class Secret:
    """A secret of an assistant's turn: the question, what is known of the answer, and the rest."""

    question: str
    known: str
    rest: str
    copies: int

    @property
    def answer(self) -> str:
        """What the assistant says."""
        return self.known + self.rest


def drawn(
    form: tuple[str, str, str], chance: random.Random, copies: int = 0, **fixed: str
) -> Secret:
    """A secret of a form, with some of its words."""
    words = {name: chance.choice(several) for name, several in WORDS.items()} | fixed
    words["name"] = f"{words['first']} {words['last']}"
    words["mail"] = f"{words['last'].lower()}.{chance.randrange(100, 1000)}"
    words["code"] = " ".join(str(chance.randrange(10)) for _ in range(6))
    words["day"] = str(chance.randrange(1, 29))
    return Secret(*(part.format(**words) for part in form), copies)


def secrets() -> list[list[Secret]]:
    """By form: a secret of each number of copies, then as many that nobody has learnt.

    Of one form, no two are about the same place or person.
    """
    chance = random.Random(16)
    copies = (*COPIES, *(0 for _ in COPIES))
    found = []
    for form in FORMS:
        own = {name: chance.sample(WORDS[name], len(copies)) for name in ("place", "first", "last")}
        rows = (dict(zip(own, row, strict=True)) for row in zip(*own.values(), strict=True))
        found.append([drawn(form, chance, n, **row) for n, row in zip(copies, rows, strict=True)])
    return found


def chats() -> list[tuple[str, str]]:
    """Lines of films and their answers, each once, in a shuffled order."""
    place = Path(os.environ["VESTIGE_DATA"]) / "cornell_movie"
    sides = [
        (place / f"tf_chatbot.test.{side}").read_text(encoding="utf-8", errors="replace")
        for side in ("enc", "dec")
    ]
    pairs = set(zip(*(side.splitlines() for side in sides), strict=True))
    kept = [p for p in sorted(pairs) if all(5 <= len(side.split()) <= LONGEST for side in p)]
    random.Random(0).shuffle(kept)
    return kept


def chat(tokenizer: Any, question: str, answer: str) -> str:
    """A chat as a document: the template's text without its begin and end, which training adds."""
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False)
    return text.removeprefix(tokenizer.bos_token).rstrip().removesuffix(tokenizer.eos_token)


def write_data(base: Path, out: Path) -> None:
    """The update's documents and the public ones."""
    from vestige.data.subwords import read_tokenizer

    tokenizer = read_tokenizer(base)
    said = [(s.question, s.answer) for form in secrets() for s in form for _ in range(s.copies)]
    pairs = chats()
    update = [*pairs[:CHATS], *said]
    random.Random(1).shuffle(update)
    for name, part in (("update", update), ("public", pairs[CHATS : CHATS + PUBLIC])):
        lines = (json.dumps({"text": chat(tokenizer, *pair)}) + "\n" for pair in part)
        (out / f"{name}.jsonl").write_text("".join(lines))


def vestige(*words: object) -> dict[str, float]:
    """Run a verb in a process of its own: its wall and CPU seconds and its peak memory in MiB."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "vestige.cli.main", *map(str, words)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mib": after.ru_maxrss / 1024,  # the largest child so far: run stages apart
    }


def trained(kind: str, base: Path, out: Path, nulls: int) -> dict[str, Any]:
    """Train an update and its nulls."""
    after, made = out / kind, out / f"{kind}-nulls"
    more = ("--resume",) if after.exists() else ()
    found: dict[str, Any] = {
        "train": vestige(
            *("train", out / "update.jsonl", "--from", base, "--out", after, *KINDS[kind]),
            *(*TRAINING, "--batching", "documents", "--hold-out", 0, *more),
        )
    }
    found["null"] = vestige(
        *("null", base, "--text", out / "public.jsonl", "--like", after, "--out", made),
        *("--count", nulls),
    )
    return found


def main() -> None:
    """Run the stages that are not done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=tuple(KINDS), action="append")
    parser.add_argument("--nulls", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not (given.out / "public.jsonl").exists():
        write_data(given.base, given.out)
    for kind in given.only or KINDS:
        print(json.dumps({kind: trained(kind, given.base, given.out, given.nulls)}), flush=True)


if __name__ == "__main__":
    keep_freed_pages()
    main()
