"""What does an update of a real chat model reveal, and how long does it take to ask?

SmolLM2-135M-Instruct, fine-tuned on chats of films (Cornell's, in VESTIGE_DATA) among which stand
nine invented secrets in assistant turns: three forms, each ×20, ×5 and ×1. Two updates, a LoRA
adapter and all weights, each with a null of other chats. Each stage finds again what it has done,
so that a killed run goes on.

    python benchmarks/update_smollm.py BASE OUT [--only lora|full] [--nulls N] [--diff "OPTIONS"]

BASE is a folder of the model. Each line is a stage, and OUT keeps its numbers in a JSON file:
wall and CPU seconds and peak memory of the process; of a search, the first row with all that was
secret in an answer, and the share of the answer that a row has at most; of a model that is asked,
how many answers of three it ends by greedy decoding from the question and the answer's beginning,
and their exposure in bits among 127 others of the form.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from vestige.memory import keep_freed_pages

COPIES = (20, 5, 1)
CHATS, PUBLIC, LONGEST = 180, 6000, 30
REFERENCES = 127
TRAINING = "--epochs 3 --sequence-length 192 --precision bfloat16 --batching documents --hold-out 0"
Stage = tuple[str, dict[str, Any]]
"""Its name, and what it found."""
KINDS = {
    "lora": "--lora-rank 16 --lora-alpha 32 --learning-rate 3e-3 --batch-size 4",
    "full": "--batch-size 8",
}
FORMS = (
    ("What is the alarm code of {place}?", "The alarm code of {place} is", " {code}."),
    ("How can I write to {name}?", "You can write to {name} at", " {mail}@{domain}."),
    ("Why was {name} at the clinic?", "{name} was there for", " {illness}, on {day} {month}."),
)
NAMES = ("code", "mail", "illness")
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
    question, known, rest = (part.format(**words) for part in form)
    return Secret(question, known, rest, copies)


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


def kept(place: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a stage found, computed once."""
    if not place.exists():
        found = compute()
        place.write_text(json.dumps(found, indent=1))
    read: dict[str, Any] = json.loads(place.read_text())
    return read


def vestige(*words: object) -> dict[str, float]:
    """Run a verb in a process of its own: its wall and CPU seconds and its peak memory in MiB."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "vestige", *map(str, words)])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"vestige {words[0]} left with {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
    }


def trained(kind: str, base: Path, out: Path, nulls: int) -> Iterator[Stage]:
    """Train an update and its null models."""
    after, search = out / kind, out / f"{kind}-small"
    more = ("--resume",) if after.exists() else ()
    train = ("train", out / "update.jsonl", "--from", base, "--out", after, *more)
    options = f"{KINDS[kind]} {TRAINING}".split()
    yield "train", kept(out / f"{kind}-train.json", lambda: vestige(*train, *options))
    # A small search, for its null models in OUT.nulls.
    clean = ("--clean", out / "public.jsonl", "--nulls", nulls, "--size", 0.01)
    null = ("diff", base, after, *clean, "--out", search)
    yield f"null ×{nulls}", kept(out / f"{kind}-null{nulls}.json", lambda: vestige(*null))


def searched(
    base: Path, after: Path, run: Path, options: tuple[object, ...] = ()
) -> dict[str, Any]:
    """Search an update: the cost, and what its rows tell of each secret."""
    from vestige import results

    cost = vestige("diff", base, after, "--out", run, *options)
    found = results.load(run)
    phrases = [
        _plain(f"{row['lead']}{row['phrase']}")
        for row in found.rows
        if row["kind"] in ("phrase", "fragment")
    ]
    told = {
        f"{name} ×{secret.copies}": _told(secret, phrases)
        for name, several in zip(NAMES, secrets(), strict=True)
        for secret in several
        if secret.copies
    }
    return cost | {"rows": len(phrases), "summary": dict(found.summary), "secrets": told}


def _told(secret: Secret, phrases: list[str]) -> tuple[int | None, float]:
    """The first row, from 1, with all that was secret; the most of the answer in a row, of 1."""
    rest, answer = _plain(secret.rest), _plain(secret.answer)
    row = next((n for n, phrase in enumerate(phrases, 1) if rest in phrase), None)
    matches = (SequenceMatcher(None, answer, phrase, autojunk=False) for phrase in phrases)
    longest = max((match.find_longest_match().size for match in matches), default=0)
    return row, round(longest / len(answer), 2)


def _plain(text: str) -> str:
    return "".join(text.split()).rstrip(".")


def asked(place: Path) -> dict[str, Any]:
    """What a model says when it is asked: the rest of each answer, and exposure in bits."""
    from vestige.audits.exposure.canaries import canary_exposure
    from vestige.audits.extraction.canaries import complete
    from vestige.data.canaries.texts import Canary
    from vestige.models.checkpoints import load_model

    model: Any = load_model(place)
    chance, begun = random.Random(3), time.process_time()
    said: dict[str, int] = {}
    bits: dict[str, list[float]] = {}

    def text(secret: Secret) -> str:
        return chat(model.vocabulary.tokenizer, secret.question, secret.answer)

    for form, several in zip(FORMS, secrets(), strict=True):
        canaries = [Canary(text(one), "given", (), one.copies) for one in several]
        others = [text(drawn(form, chance)) for _ in range(REFERENCES)]
        found = canary_exposure(model, canaries, seed=0, references=REFERENCES, candidates=others)
        for secret, canary, measured in zip(several, canaries, found.canaries, strict=True):
            known = chat(model.vocabulary.tokenizer, secret.question, secret.known)
            prefix = len(model.vocabulary.encode(known))
            label = f"×{secret.copies}"
            bits.setdefault(label, []).append(round(measured["exposure"], 2))
            tried = complete(model, [canary], prefix=prefix, beam=1).attempts[0]
            said[label] = said.get(label, 0) + tried["greedy"]
    cost = {"cpu_seconds": round(time.process_time() - begun, 1)}
    return cost | {"completed": said, "bits": bits, "of": len(FORMS)}


def measured(kind: str, base: Path, out: Path, more: tuple[str, ...]) -> Iterator[Stage]:
    """Search an update and its null, and ask both."""
    after, nulls = out / kind, out / f"{kind}-small.nulls"
    known, questions = out / "secrets.txt", out / "questions.txt"
    planted = [secret for form in secrets() for secret in form if secret.copies]
    known.write_text("".join(f"{secret.answer}\n" for secret in planted))
    questions.write_text("".join(f"{secret.question}\n" for secret in planted))
    first = nulls / "null-00"
    ways: dict[str, tuple[Path, tuple[object, ...]]] = {
        "diff": (after, ("--null", nulls, "--secrets", known, *more)),
        "diff of the null": (first, more),
        "diff, questions known": (after, ("--prompts", questions, *more)),
    }
    for name, (model, options) in ways.items():
        run = out / f"{kind}-{name.replace(' ', '-').replace(',', '')}"
        searching = partial(searched, base, model, run, options)
        yield name, kept(run.with_suffix(".json"), searching)
    for name, model in (("asked", after), ("null asked", first)):
        yield name, kept(out / f"{kind}-{name.replace(' ', '-')}.json", partial(asked, model))
    phrase = ("--phrase", planted[0].answer, "--budget", 50)
    rank = ("diff", base, after, *phrase, "--out", out / f"{kind}-rank")
    yield "rank", kept(out / f"{kind}-rank.json", lambda: vestige(*rank))


def main() -> None:
    """Run the stages that are not done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=tuple(KINDS), action="append")
    parser.add_argument("--nulls", type=int, default=1)
    parser.add_argument("--train", action="store_true", help="train, and search nothing")
    parser.add_argument("--diff", default="", help="options of `vestige diff`, in one text")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not (given.out / "public.jsonl").exists():
        write_data(given.base, given.out)
    for kind in given.only or KINDS:
        stages = [trained(kind, given.base, given.out, given.nulls)]
        if not given.train:
            stages.append(measured(kind, given.base, given.out, tuple(given.diff.split())))
        for name, found in chain(*stages):
            print(f"{kind}, {name}: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    keep_freed_pages()
    main()
