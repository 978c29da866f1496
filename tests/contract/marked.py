"""A world in which every secret begins with `MARK`, and one quick command of every kind.

Texts, phrases, users' names and words of models are marked. Labels, patterns without their
fillings, and names of files and columns are public and have no mark.
"""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.files import damaged_copy, write_rows
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

MARK = "xqz"
WORDS = tuple(
    f"{MARK}{kind}{a}{b}" for kind in ("oak", "elm", "ash") for a in "abcdefgh" for b in "stuvwxyz"
)
PHRASE = " ".join(f"{MARK}new{letter}" for letter in "abcd")
KNOWN = " ".join(WORDS[:4])
"""A phrase of words that the models know."""


class Run(NamedTuple):
    """A command, the kind of its result, and whether it repeats from its recorded options."""

    kind: str | None
    line: str
    repeats: bool = True


# W/ stands for the world, OUT for a new path, | for a space inside a word; `SHORT` and `FILLED`
# have the other words in capitals.
RUNS = {
    "plant": Run(None, "plant W/corpus.jsonl --phrase NEW", False),
    "plant users": Run(
        None,
        "plant W/corpus.jsonl --user who --per-user --repetitions 1,2 --length 2", False,
    ),
    "plant nlu": Run(None, "plant W/utterances.jsonl NLU PIN --candidates n=SET", False),
    "verify": Run(None, "plant W/planted --verify", False),
    "verify nlu": Run(None, "plant W/planted-nlu --verify", False),
    "train": Run(
        "DefendedTraining",
        "train W/planted-known TINY --vocabulary W/before --defence goldfish --goldfish-k 3",
    ),
    "train private": Run(
        "DefendedTraining",
        "train W/corpus.jsonl --from W/trained --epochs 1 --device cpu --defence dp-sgd "
        "--noise-multiplier 1 --accountant rdp --accept-private-vocabulary", False,
    ),
    "train seeds": Run("DefendedTraining", "train W/mine.jsonl TINY --seeds 2", False),
    "train nlu": Run("IntentSlotTraining", "train W/utterances.jsonl --task nlu TINY"),
    "train pairs": Run(
        "PairTraining", "train W/corpus.jsonl --task translation --source who TINY"
    ),
    "diff": Run(
        "UpdateDiff",
        "diff W/before W/after --length 3 --size 0.2 --prompt KNOWN --secrets W/known.txt",
    ),
    "diff prompts": Run("UpdateDiff", "diff W/before W/after --length 3 --prompts W/known.txt"),
    "diff clean": Run(
        "UpdateDiff",
        "diff W/trained W/tuned --clean W/clean.jsonl --nulls 2 --length 3 --size 0.2", False,
    ),
    "diff phrase": Run("DifferentialRank", "diff W/before W/after --phrase KNOWN --budget 500"),
    "exposure": Run("CanaryExposure", "exposure W/after W/planted-known --exact 50"),
    "exposure secrets": Run("SecretExposure", "exposure W/after W/choices.txt --references 200"),
    "exposure listed": Run("SecretExposure", "exposure W/after W/known.txt"),
    "exposure since": Run(
        "SecretRank", "exposure W/after W/choices.txt --before W/before --references 200"
    ),
    "extract": Run("Completion", "extract W/after W/planted-known --prefix 1"),
    "extract secrets": Run("SecretCompletion", "extract W/after W/choices.txt"),
    "extract listed": Run("SecretCompletion", "extract W/after W/known.txt"),
    "extract texts": Run(
        "TextMemorization",
        "extract W/after W/unknown.txt --as texts --reference W/corpus.jsonl --prefix 1 --suffix 2",
    ),
    "extract planted utterances": Run("SecretAudit", "extract W/trained-nlu W/planted-nlu"),
    "extract utterances": Run("Extraction", "extract TWO PIN --candidates n=SET --truth TRUTH"),
    "membership": Run(
        "TextAudit",
        "membership W/after --base W/before --texts W/unknown.txt --reference W/corpus.jsonl",
    ),
    "membership users": Run("UserAudit", "membership USERS --person xqzme"),
    "membership service": Run(
        "UserAudit", "membership secret_service:well --unit user SERVICE", False
    ),
    "unlearning": Run(
        "Deletion",
        "unlearning W/before W/after --deleted W/deleted.txt --reference W/corpus.jsonl "
        "--retrained W/before",
    ),
    "compare": Run(
        "DefenceComparison",
        "compare PAIR --baseline plain --manifest W/planted-known --test W/mine.jsonl "
        "--user who --group 2",
    ),
    "check": Run("ReleaseCheck", "check CHECKED --all --secrets W/known.txt", False),
    "check alone": Run("ReleaseCheck", "check W/after --base W/before", False),
    "report": Run(None, "report W/run", False),
    "report since": Run(None, "report W/run --since W/run", False),
}  # fmt: skip
"""One quick command of every kind; `demo` is left out, as its text is public."""

TINY = "--epochs 1 --hidden-size 4 --device cpu"
AUDITED = "--texts W/mine.jsonl --reference W/corpus.jsonl --user who --shadows 0 --device cpu"
SHORT = {
    "TINY": TINY,
    "PIN": "--intent PinIntent --slot code",
    "AUDITED": AUDITED,
    "SERVICE": f"--top-k 3 --attempts 1 {AUDITED}",
    "USERS": f"W/after --unit user {AUDITED}",
    "NLU": "--task nlu --pattern my|code|is|{n:2}",
    "TWO": "W/trained-nlu --pattern my|code|is|{n:2}",
    "CHECKED": "W/after --base W/before --trained-on W/mine.jsonl --never W/corpus.jsonl",
    "PAIR": "plain=W/before gold=W/after",
}
"""Abbreviations in commands."""

SETS = ",".join(f"{MARK}{letter}" for letter in "abcdefghij")
FILLED = {"NEW": PHRASE, "KNOWN": KNOWN, "SET": SETS, "TRUTH": f"{MARK}a {MARK}b"}


def filled(line: str, world: Path, out: Path) -> list[str]:
    """The words of a command that writes to `out`, if it writes."""
    words = []
    for word in [part for name in line.split() for part in SHORT.get(name, name).split()]:
        for name, text in FILLED.items():
            word = word.replace(name, text)
        word = word.replace("|", " ").replace("W/", f"{world}/")
        words.append(str(out) if word == "OUT" else word)
    return words if "--verify" in words or str(out) in words else [*words, "--out", str(out)]


def marks(text: str) -> list[str]:
    """The surroundings of each mark in a text."""
    text = text.casefold()
    return [text[max(0, n - 60) : n + 30] for n in range(len(text)) if text.startswith(MARK, n)]


def bigrams(words: list[str], seed: int) -> TableModel:
    """A bigram model of marked words."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    generator = np.random.default_rng(seed)
    table = generator.dirichlet(np.full(len(vocabulary), 0.2), len(vocabulary) + 1) + 1e-3
    table /= table.sum(axis=1, keepdims=True)
    return TableModel(table[0], table[1:], vocabulary)


SERVICES = f"""
def well(contexts):
    return [("{WORDS[0]}", "{WORDS[1]}", "{WORDS[2]}")] * len(contexts)

def dead(contexts):
    raise ConnectionError("cannot answer " + " ".join(contexts[0].words))

def odd(contexts):
    return [{{"{WORDS[0]}": 1}}] * len(contexts)

def leaves(contexts):
    raise SystemExit("cannot answer " + " ".join(contexts[0].words))
"""


def make(root: Path, shell: Any) -> None:
    """Write sound and broken corpora, models, plantings and runs."""
    _write_texts(root)
    _write_utterances(root)
    (root / "secret_service.py").write_text(SERVICES)
    for name, seed in (("before", 0), ("after", 1)):
        save_model(bigrams([*WORDS], seed), root / name)
    save_model(bigrams([*WORDS[:-1], f"{MARK}yew"], 2), root / "other")
    damaged_copy(root / "before", root / "broken", "model.json", b'{"architecture": "xqz')
    words = json.loads((root / "before" / "vocabulary.json").read_text())
    twice = {**words, "words": [*words["words"], WORDS[0]]}
    damaged_copy(root / "before", root / "twice", "vocabulary.json", json.dumps(twice))
    for name, line in {
        "planted": "plant W/corpus.jsonl --phrase NEW",
        "planted-known": "plant W/corpus.jsonl --vocabulary W/before --length 3",
        "planted-nlu": "plant W/utterances.jsonl NLU PIN --candidates n=SET --copies 20",
        "trained": "train W/corpus.jsonl TINY",
        "tuned": "train W/planted --from W/trained --epochs 1 --device cpu",
        "trained-nlu": "train W/planted-nlu --task nlu TINY",
        "run": "diff W/before W/after --phrase KNOWN",
    }.items():
        done = shell(*filled(line, root, root / name))
        assert done.finished, (line, done.stderr, done.exception)
    _write_plantings(root)
    _write_runs(root)


def _write_texts(root: Path) -> None:
    generator = random.Random(0)
    for name, users, each in (("corpus", 60, 4), ("mine", 2, 6), ("clean", 200, 4)):
        rows = [{"text": KNOWN, "who": f"{MARK}{name}0"}] + [
            {"text": " ".join(generator.choices(WORDS, k=8)), "who": f"{MARK}{name}{user}"}
            for user in range(users)
            for _ in range(each)
        ]
        write_rows(root / f"{name}.jsonl", rows)
    line = json.dumps({"text": KNOWN})
    for name, content in {
        "no-header.csv": f"{KNOWN},{MARK}ann\n{PHRASE},{MARK}bob\n",
        "ragged.csv": f"text,who\n{KNOWN},{MARK}ann\n{KNOWN},{MARK}bob,{MARK}cy\n",
        "cut.jsonl": f'{line}\n{{"text": "{KNOWN}',
        "list.jsonl": f'["{KNOWN}"]\n',
        "deep.jsonl": "[" * 100_000 + f'"{KNOWN}"',
        "numbers.jsonl": f'{{"text": ["{KNOWN}"]}}\n',
        "surrogate.jsonl": f'{{"text": "{KNOWN} \\ud800"}}\n',
        "unknown.txt": f"{PHRASE}\n",
        "deleted.txt": "".join(f"{PHRASE} {number}\n" for number in range(8)),
        "choices.txt": f"{{{{{WORDS[0]}|{WORDS[1]}|{WORDS[2]}}}}} {WORDS[3]}\n",
        "known.txt": f"{KNOWN}\n{' '.join(WORDS[5:8])}\n",
        "marks.txt": f"{KNOWN} {{{{}}}}\n",
        "short.txt": f"{MARK}\n",
        "vectors.txt": f"{WORDS[0]} 0.1 {MARK}two\n",
        "vectors-inf.txt": f"{WORDS[0]} 0.1 1e999\n",
    }.items():
        (root / name).write_text(content)
    latin = f"{KNOWN} caf\xe9 {MARK}after\n".encode("latin-1")
    (root / "latin.txt").write_bytes(latin)
    (root / "vectors-latin.txt").write_bytes(f"{MARK}caf\xe9 0.1 0.2\n".encode("latin-1"))
    (root / "cornell").mkdir()
    fields = ("L1", "u0", "m0", f"{MARK}ann", KNOWN)
    (root / "cornell" / "movie_lines.txt").write_text(
        " +++$+++ ".join(fields) + "\n" + " +++$+++ ".join((KNOWN, *fields[1:])) + "\n"
    )


def _write_utterances(root: Path) -> None:
    utterances = [
        Utterance((f"{MARK}play", f"{MARK}song{n % 5}"), ("O", "B-song"), ("Play", "Stop")[n % 2])
        for n in range(24)
    ]
    write_utterances(Utterances.of(utterances), root / "utterances.jsonl")
    row = {"tokens": [f"{MARK}play", f"{MARK}it"], "tags": ["O", "O"], "intent": "Play"}
    for name, changed in {
        "utterances-tags": {"tags": ["I-song", "O"]},
        "utterances-mixed": {"tokens": [[f"{MARK}play"], f"{MARK}it"]},
    }.items():
        write_rows(root / f"{name}.jsonl", [row | changed])
    (root / "utterances-cut.jsonl").write_text(json.dumps(row)[:-40] + "\n")
    (root / "brackets.csv").write_text(
        f"scenario,intent,answer_annotation\nmusic,play,{MARK}play [song : {MARK}one\n"
    )


def _write_plantings(root: Path) -> None:
    manifest = json.loads((root / "planted" / "manifest.json").read_text())
    lines = (root / "planted" / "corpus.jsonl").read_text().splitlines(keepends=True)
    entry = manifest["canaries"][0]
    changed = {**manifest, "canaries": [{**entry, "phrase": KNOWN}, *manifest["canaries"][1:]]}
    number = {**manifest, "canaries": [{**entry, "copies": KNOWN}, *manifest["canaries"][1:]]}
    for name, file, content in [
        ("changed", "manifest.json", json.dumps(changed)),
        ("number", "manifest.json", json.dumps(number)),
        ("list", "manifest.json", json.dumps({**manifest, "canaries": [KNOWN]})),
        ("deep", "manifest.json", "[" * 100_000 + f'"{KNOWN}"'),
        ("gone", "corpus.jsonl", "".join(line for line in lines if PHRASE not in line)),
        ("moved", "corpus.jsonl", "".join(sorted(lines))),
    ]:
        damaged_copy(root / "planted", root / f"planted-{name}", file, content)
    latin = json.dumps(manifest).replace(PHRASE, f"{KNOWN}\xe9").encode("latin-1")
    damaged_copy(root / "planted", root / "planted-latin", "manifest.json", latin)

    manifest = json.loads((root / "planted-nlu" / "manifest.json").read_text())
    lines = (root / "planted-nlu" / "train.jsonl").read_text().splitlines(keepends=True)
    entry = {**manifest["canaries"][0], "secret": [f"{MARK}x", f"{MARK}y"]}
    text = {**manifest["canaries"][0], "pattern": KNOWN}
    for name, file, content in [
        ("changed", "manifest.json", {**manifest, "canaries": [text, *manifest["canaries"][1:]]}),
        ("word", "manifest.json", {**manifest, "canaries": [entry, *manifest["canaries"][1:]]}),
        ("gone", "train.jsonl", "".join(line for line in lines if "PinIntent" not in line)),
        ("label", "train.jsonl", "".join(lines).replace("PinIntent", "Other", 1)),
        ("moved", "train.jsonl", "".join(sorted(lines))),
    ]:
        data = content if isinstance(content, str) else json.dumps(content)
        damaged_copy(root / "planted-nlu", root / f"planted-nlu-{name}", file, data)


def _write_runs(root: Path) -> None:
    summary = json.loads((root / "run" / "summary.json").read_text())
    word = dict.fromkeys(summary, KNOWN)
    damaged_copy(root / "run", root / "run-word", "summary.json", json.dumps(word))
    damaged_copy(root / "run", root / "run-keys", "summary.json", json.dumps({KNOWN: 1}))
