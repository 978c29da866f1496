"""A workspace in which every secret has a mark, and what each verb is asked to do with it.

Whatever text, phrase, user's name or model's word there is begins with `MARK`. What is no secret
(labels, patterns without their fillings, names of files and columns) has none.
"""

import json
import random
import shutil
from pathlib import Path

import numpy as np

from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

MARK = "xqz"
WORDS = tuple(
    f"{MARK}{kind}{a}{b}" for kind in ("oak", "elm", "ash") for a in "abcdefgh" for b in "stuvwxyz"
)
PHRASE = " ".join(f"{MARK}new{letter}" for letter in "abcd")
SPOKEN = " ".join(WORDS[:4])
"""A phrase of words that the models know."""

TINY = "--epochs 1 --hidden-size 4 --device cpu"
PIN = "--intent PinIntent --slot code"
AUDITED = "--texts W/mine.jsonl --reference W/corpus.jsonl --user who --shadows 0 --device cpu"
SERVICE = f"--top-k 3 --attempts 1 {AUDITED}"
NLU = "--task nlu --pattern my|code|is|{n:2}"
TWO = "W/trained-nlu --pattern my|code|is|{n:2}"
CHECKED = "W/after --base W/before --trained-on W/mine.jsonl --never W/corpus.jsonl"
PAIR = "plain=W/before gold=W/after"

# What follows `vestige`: W/ stands for the workspace, OUT for a new place, | for a blank inside a
# word, and a word in capitals for what `filled` says. "ok" ends with 0, 1 or 3, "no" with 2; of
# every run in OUT a page is made.
CASES = {
    "demo": [],
    "plant": [
        "ok W/corpus.jsonl --out OUT",
        "ok W/corpus.jsonl --out OUT --json",
        "ok W/corpus.jsonl --out OUT --user who --per-user --repetitions 1,2 --length 2",
        "ok W/corpus.jsonl --out OUT --phrase NEW",
        "ok W/planted --verify",
        "ok W/planted --verify --json",
        "no W/corpus.jsonl --out OUT --phrase SPOKEN",
        "no W/corpus.jsonl --out OUT --phrase NEW --phrase NEW",
        "no W/corpus.jsonl --out OUT --phrase NEW --phrase xqzother|NEW",
        "no W/corpus.jsonl --out OUT --phrase NEW --phrase |",
        "no W/corpus.jsonl --out OUT --phrase NEW --vocabulary W/before",
        "no W/corpus.jsonl --out OUT --phrase xqznewa xqznewb xqznewc",
        "no W/corpus.jsonl --out OUT --pattern NEW",
        "no W/planted-changed --verify",
        "no W/planted-gone --verify",
        "no W/planted-moved --verify",
        "no W/planted-number --verify",
        "no W/planted-list --verify",
        "no W/planted-latin --verify",
        "no W/planted-deep --verify",
        f"ok W/said.jsonl {NLU} {PIN} --candidates n=SET --out OUT",
        "no W/said.jsonl --task nlu --pattern NEW --out OUT",
        f"no W/said.jsonl --task nlu --pattern my|is|xqz{{digit:2}} {PIN} --out OUT",
        f"no W/said.jsonl --task nlu --pattern xqzmy|{{digit:99999}} {PIN} --out OUT",
        f"no W/said.jsonl {NLU} {PIN} --candidates xqzann --out OUT",
        f"no W/said.jsonl {NLU} {PIN} --candidates n=xqzann --out OUT",
        f"no W/said.jsonl {NLU} {PIN} --candidates n=xqza,xqza --out OUT",
        f"no W/said.jsonl {NLU} {PIN} --candidates n=xqza|xqzb,xqzc --out OUT",
        f"no W/said-cut.jsonl {NLU} {PIN} --candidates n=SET --out OUT",
        f"no W/said-tags.jsonl {NLU} {PIN} --candidates n=SET --out OUT",
        f"no W/said-mixed.jsonl {NLU} {PIN} --candidates n=SET --out OUT",
        f"no W/brackets.csv --format nlu-evaluation {NLU} {PIN} --candidates n=SET --out OUT",
        "no W/planted-nlu-changed --verify",
        "no W/planted-nlu-gone --verify",
        "no W/planted-nlu-word --verify",
        "ok W/planted-nlu --verify",
    ],
    "train": [
        f"ok W/corpus.jsonl {TINY} --out OUT",
        f"ok W/corpus.jsonl {TINY} --out OUT --json",
        f"ok W/planted-known {TINY} --vocabulary W/before --out OUT",
        f"ok W/said.jsonl --task nlu {TINY} --out OUT",
        "no W/no-header.csv --out OUT",
        "no W/ragged.csv --out OUT",
        "no W/cut.jsonl --out OUT",
        "no W/list.jsonl --out OUT",
        "no W/deep.jsonl --out OUT",
        "no W/numbers.jsonl --out OUT",
        "no W/surrogate.jsonl --out OUT",
        "no W/latin.txt --out OUT",
        "no W/corpus.jsonl --text body --out OUT",
        "no W/planted-changed --out OUT",
        "no W/corpus.jsonl --vocabulary W/twice --out OUT",
        "no W/corpus.jsonl --from W/twice --out OUT",
        "no W/cornell --format cornell --task dialogue --out OUT",
        f"no W/said.jsonl --task nlu --vectors W/vectors.txt {TINY} --out OUT",
        f"no W/said.jsonl --task nlu --vectors W/vectors-inf.txt {TINY} --out OUT",
        f"no W/said.jsonl --task nlu --vectors W/vectors-latin.txt {TINY} --out OUT",
        "no W/corpus.jsonl --out OUT xqzstray xqzwords",
    ],
    "diff": [
        "ok W/before W/after --out OUT --length 3",
        "ok W/before W/after --out OUT --length 3 --json",
        "ok W/before W/after --out OUT --length 3 --size 0.2 --prompt SPOKEN --secrets W/known.txt",
        "ok W/before W/after --out OUT --prompts W/known.txt --secrets W/known.txt --json",
        "no W/before W/after --out OUT --prompt | --secrets W/known.txt",
        "no W/before W/after --out OUT --secrets W/unknown.txt",
        "no W/before W/other --out OUT",
        "no W/before W/broken --out OUT",
        "no W/before W/twice --out OUT",
        "no W/before W/trained --clean W/cut.jsonl --out OUT",
        "no W/before W/trained --clean W/no-header.csv --out OUT",
        "no W/other W/trained --clean W/corpus.jsonl --out OUT",
        "ok W/before W/after --phrase SPOKEN --budget 500 --out OUT",
        "ok W/before W/after --phrase=SPOKEN --budget 500 --out OUT --json",
        "no W/before W/after --phrase SPOKEN --prompt SPOKEN --out OUT",
        "no W/before W/after --phrase NEW --out OUT",
        "no W/before W/after --phrase SPOKEN|xqznone --out OUT",
        "no W/before W/after --phrase | --out OUT",
        "no W/before W/after --phrase xqzoakas xqzelmas --out OUT",
        "no W/before W/other --phrase SPOKEN --budget 500 --out OUT",
    ],
    "exposure": [
        "ok W/after W/planted-known --out OUT",
        "ok W/after W/planted-known --out OUT --json --exact 50",
        "no W/after W/planted --out OUT",
        "no W/after W/planted-changed --out OUT",
        "no W/after W/planted-known --candidates W/latin.txt --out OUT",
        "no W/after W/planted-known --candidates W/unknown.txt --out OUT",
        "no W/after W/planted-nlu --out OUT",
        "ok W/after W/choices.txt --references 200 --out OUT",
        "ok W/after W/choices.txt --json --out OUT",
        "ok W/after W/known.txt --out OUT",
        "no W/after W/choices.txt --question SPOKEN --out OUT",
        "ok W/after W/choices.txt --before W/before --references 200 --out OUT",
        "ok W/after W/choices.txt --before W/before --json --out OUT",
        "ok W/after W/known.txt --before W/before --out OUT",
        "no W/after W/planted-known --before W/before --out OUT",
        "no W/after W/choices.txt --before W/before --question SPOKEN --out OUT",
    ],
    "extract": [
        "ok W/after W/choices.txt --out OUT",
        "ok W/after W/choices.txt --json --out OUT",
        "ok W/after W/known.txt --out OUT",
        "no W/after W/choices.txt --question SPOKEN --out OUT",
        "ok W/after W/planted-known --out OUT --prefix 1",
        "ok W/after W/planted-known --out OUT --prefix 1 --json",
        "no W/after W/planted-known --out OUT --prefix 9",
        "no W/after W/planted --out OUT",
        "no W/after W/planted-changed --out OUT",
        "ok W/after W/unknown.txt --as texts --reference W/corpus.jsonl --prefix 1 --suffix 2 "
        "--out OUT",
        "ok W/after W/unknown.txt --as texts --prefix 1 --suffix 2 --out OUT --json",
        "no W/after W/unknown.txt --as texts --prefix 500 --out OUT",
        "no W/after W/corpus.jsonl --reference W/corpus.jsonl --out OUT",
        "no W/after W/cut.jsonl --out OUT",
        "ok W/trained-nlu W/planted-nlu --out OUT",
        "ok W/trained-nlu W/planted-nlu --json --out OUT",
        f"ok {TWO} {PIN} --candidates n=SET --truth TRUTH --out OUT",
        f"ok {TWO} {PIN} --candidates n=SET --json --out OUT",
        f"no {TWO} {PIN} --candidates n=SET --truth NEW --out OUT",
        f"no {TWO} {PIN} --candidates n=SET --truth xqza|xqzx --out OUT",
        f"no {TWO} {PIN} --candidates n=xqzq,xqzr --out OUT",
        f"no {TWO} {PIN} --candidates m=SET --out OUT",
        f"no {TWO} --candidates n=SET --out OUT",
        "no W/trained-nlu --pattern NEW --out OUT",
        f"no W/trained-nlu --pattern NEW|xqzslot {PIN} --out OUT",
        "no W/trained-nlu W/planted-nlu-changed --out OUT",
        "no W/trained-nlu W/planted --out OUT",
    ],
    "membership": [
        "ok W/after --base W/before --texts W/unknown.txt --reference W/corpus.jsonl --out OUT",
        "ok W/after --texts W/unknown.txt --reference W/corpus.jsonl --out OUT --json",
        "no W/after --texts W/mine.jsonl --reference W/corpus.jsonl --out OUT",
        "no W/after --texts W/corpus.jsonl --reference W/unknown.txt --out OUT",
        "no W/after --texts W/cut.jsonl --reference W/corpus.jsonl --out OUT",
        "no W/after --base W/other --texts W/unknown.txt --reference W/corpus.jsonl --out OUT",
        f"ok W/after --unit user {AUDITED} --out OUT",
        f"ok W/after --unit user {AUDITED} --out OUT --json --person xqzme",
        f"ok secret_service:well --unit user {SERVICE} --out OUT",
        f"no secret_service:dead --unit user {SERVICE} --out OUT",
        f"no secret_service:odd --unit user {SERVICE} --out OUT",
        f"no secret_service:leaves --unit user {SERVICE} --out OUT",
        f"no W/after --unit user {AUDITED} --texts W/corpus.jsonl --out OUT",
        f"no W/after --unit user {AUDITED} --texts W/no-header.csv --out OUT",
        f"no W/after --unit user {AUDITED} --texts W/cut.jsonl --out OUT",
        f"no W/after --unit user {AUDITED} --reference W/mine.jsonl --person xqztree0 --out OUT",
    ],
    "unlearning": [
        "ok W/before W/after --deleted W/deleted.txt --reference W/corpus.jsonl --out OUT",
        "ok W/before W/after --deleted W/deleted.txt --reference W/corpus.jsonl "
        "--retrained W/before --out OUT --json",
        "no W/before W/after --deleted W/mine.jsonl --reference W/mine.jsonl --out OUT",
        "no W/before W/other --deleted W/deleted.txt --reference W/corpus.jsonl --out OUT",
        "no W/before W/after --deleted W/cut.jsonl --reference W/corpus.jsonl --out OUT",
    ],
    "compare": [
        f"ok {PAIR} --baseline plain --manifest W/planted-known --test W/mine.jsonl --out OUT",
        f"ok {PAIR} --baseline plain --test W/mine.jsonl --user who --group 2 --out OUT --json",
        "no plain=W/before gold=W/other --baseline plain --test W/mine.jsonl --out OUT",
        f"no {PAIR} --baseline plain --manifest W/planted-changed --test W/mine.jsonl --out OUT",
        f"no {PAIR} --baseline plain --test W/cut.jsonl --out OUT",
    ],
    "check": [
        f"ok {CHECKED} --secrets W/known.txt --out OUT",
        f"ok {CHECKED} --all --secrets W/known.txt --out OUT --json",
        "ok W/after --base W/before --out OUT --json",
        "no W/after --trained-on W/mine.jsonl --out OUT",
        "no W/before --base W/before --trained-on W/mine.jsonl --out OUT",
        "no W/after --base W/other --trained-on W/mine.jsonl --out OUT",
        "no W/broken --base W/before --trained-on W/mine.jsonl --out OUT",
        "no W/twice --base W/before --trained-on W/mine.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/cut.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/ragged.csv --out OUT",
        "no W/after --base W/before --trained-on W/list.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/deep.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/numbers.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/surrogate.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/latin.txt --out OUT",
        "no W/after --base W/before --trained-on W/mine.jsonl --text body --out OUT",
        "no W/after --base W/before --trained-on W/mine.jsonl --never W/mine.jsonl --out OUT",
        "no W/after --base W/before --trained-on W/mine.jsonl --never W/cut.jsonl --out OUT",
        "no W/after --base W/before --secrets W/marks.txt --out OUT",
        "no W/after --base W/before --secrets W/short.txt --out OUT",
        "no W/after --base W/before --secrets W/latin.txt --out OUT",
        "no W/after --base W/before --secrets W/planted-changed --out OUT",
    ],
    "report": [
        "ok W/run",
        "ok W/run --out OUT",
        "ok W/run --out OUT --json",
        "no W/run --junit OUT",
        "no W/run --json --allow-undecided --markdown OUT",
        "no W/run-word",
        "ok W/run --since W/run --out OUT --json",
        "no W/run-word --out OUT",
        "no W/run-keys --out OUT",
    ],
}
"""Every verb has its cases; `demo` reads no text but its own, which is public."""

SETS = ",".join(f"{MARK}{letter}" for letter in "abcdefghij")
FILLED = {"NEW": PHRASE, "SPOKEN": SPOKEN, "SET": SETS, "TRUTH": f"{MARK}a {MARK}b"}


def filled(line: str, place: Path, out: Path) -> list[str]:
    """The words of a case."""
    found = []
    for word in line.split():
        for name, text in FILLED.items():
            word = word.replace(name, text)
        word = word.replace("|", " ").replace("W/", f"{place}/")
        found.append(str(out) if word == "OUT" else word)
    return found


def bigrams(words: list[str], seed: int) -> TableModel:
    """A bigram model of marked words."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    chance = np.random.default_rng(seed)
    table = chance.dirichlet(np.full(len(vocabulary), 0.2), len(vocabulary) + 1) + 1e-3
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


def make(root: Path, shell) -> None:
    """Fill a workspace: sound and broken corpora, models, plantings and runs."""
    _texts(root)
    _utterances(root)
    (root / "secret_service.py").write_text(SERVICES)
    for name, seed in (("before", 0), ("after", 1)):
        save_model(bigrams([*WORDS], seed), root / name)
    save_model(bigrams([*WORDS[:-1], f"{MARK}yew"], 2), root / "other")
    _damaged(root / "before", root / "broken", "model.json", b'{"architecture": "xqz')
    words = json.loads((root / "before" / "vocabulary.json").read_text())
    twice = {**words, "words": [*words["words"], WORDS[0]]}
    _damaged(root / "before", root / "twice", "vocabulary.json", json.dumps(twice).encode())
    for line in (
        "plant W/corpus.jsonl --phrase NEW --out W/planted",
        "plant W/corpus.jsonl --vocabulary W/before --length 3 --out W/planted-known",
        "plant W/said.jsonl --task nlu --pattern my|code|is|{n:2} --intent PinIntent --slot code "
        "--candidates n=SET --copies 20 --out W/planted-nlu",
        f"train W/corpus.jsonl {TINY} --out W/trained",
        f"train W/planted-nlu --task nlu {TINY} --out W/trained-nlu",
        "diff W/before W/after --phrase SPOKEN --out W/run",
    ):
        done = shell(*filled(line, root, root))
        assert done.finished, (line, done.stderr, done.exception)
    _plantings(root)
    _runs(root)


def _texts(root: Path) -> None:
    chance = random.Random(0)
    for name, users, each in (("corpus", 60, 4), ("mine", 2, 6)):
        rows = [{"text": SPOKEN, "who": f"{MARK}{name}0"}] + [
            {"text": " ".join(chance.choices(WORDS, k=8)), "who": f"{MARK}{name}{user}"}
            for user in range(users)
            for _ in range(each)
        ]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = json.dumps({"text": SPOKEN})
    for name, content in {
        "no-header.csv": f"{SPOKEN},{MARK}ann\n{PHRASE},{MARK}bob\n",
        "ragged.csv": f"text,who\n{SPOKEN},{MARK}ann\n{SPOKEN},{MARK}bob,{MARK}cy\n",
        "cut.jsonl": f'{line}\n{{"text": "{SPOKEN}',
        "list.jsonl": f'["{SPOKEN}"]\n',
        "deep.jsonl": "[" * 100_000 + f'"{SPOKEN}"',
        "numbers.jsonl": f'{{"text": ["{SPOKEN}"]}}\n',
        "surrogate.jsonl": f'{{"text": "{SPOKEN} \\ud800"}}\n',
        "unknown.txt": f"{PHRASE}\n",
        "deleted.txt": "".join(f"{PHRASE} {number}\n" for number in range(8)),
        "choices.txt": f"{{{{{WORDS[0]}|{WORDS[1]}|{WORDS[2]}}}}} {WORDS[3]}\n",
        "known.txt": f"{SPOKEN}\n{' '.join(WORDS[5:8])}\n",
        "marks.txt": f"{SPOKEN} {{{{}}}}\n",
        "short.txt": f"{MARK}\n",
        "vectors.txt": f"{WORDS[0]} 0.1 {MARK}two\n",
        "vectors-inf.txt": f"{WORDS[0]} 0.1 1e999\n",
    }.items():
        (root / name).write_text(content)
    latin = f"{SPOKEN} caf\xe9 {MARK}after\n".encode("latin-1")
    (root / "latin.txt").write_bytes(latin)
    (root / "vectors-latin.txt").write_bytes(f"{MARK}caf\xe9 0.1 0.2\n".encode("latin-1"))
    (root / "cornell").mkdir()
    fields = ("L1", "u0", "m0", f"{MARK}ann", SPOKEN)
    (root / "cornell" / "movie_lines.txt").write_text(
        " +++$+++ ".join(fields) + "\n" + " +++$+++ ".join((SPOKEN, *fields[1:])) + "\n"
    )


def _utterances(root: Path) -> None:
    said = [
        Utterance((f"{MARK}play", f"{MARK}song{n % 5}"), ("O", "B-song"), ("Play", "Stop")[n % 2])
        for n in range(24)
    ]
    write_utterances(Utterances.of(said), root / "said.jsonl")
    row = {"tokens": [f"{MARK}play", f"{MARK}it"], "tags": ["O", "O"], "intent": "Play"}
    for name, changed in {
        "said-tags": {"tags": ["I-song", "O"]},
        "said-mixed": {"tokens": [[f"{MARK}play"], f"{MARK}it"]},
    }.items():
        (root / f"{name}.jsonl").write_text(json.dumps(row | changed) + "\n")
    (root / "said-cut.jsonl").write_text(json.dumps(row)[:-40] + "\n")
    (root / "brackets.csv").write_text(
        f"scenario,intent,answer_annotation\nmusic,play,{MARK}play [song : {MARK}one\n"
    )


def _plantings(root: Path) -> None:
    sealed = json.loads((root / "planted" / "manifest.json").read_text())
    lines = (root / "planted" / "corpus.jsonl").read_text().splitlines(keepends=True)
    entry = sealed["canaries"][0]
    changed = {**sealed, "canaries": [{**entry, "phrase": SPOKEN}, *sealed["canaries"][1:]]}
    number = {**sealed, "canaries": [{**entry, "copies": SPOKEN}, *sealed["canaries"][1:]]}
    for name, file, content in [
        ("changed", "manifest.json", json.dumps(changed)),
        ("number", "manifest.json", json.dumps(number)),
        ("list", "manifest.json", json.dumps({**sealed, "canaries": [SPOKEN]})),
        ("deep", "manifest.json", "[" * 100_000 + f'"{SPOKEN}"'),
        ("gone", "corpus.jsonl", "".join(line for line in lines if PHRASE not in line)),
        ("moved", "corpus.jsonl", "".join(sorted(lines))),
    ]:
        _damaged(root / "planted", root / f"planted-{name}", file, content.encode())
    latin = json.dumps(sealed).replace(PHRASE, f"{SPOKEN}\xe9").encode("latin-1")
    _damaged(root / "planted", root / "planted-latin", "manifest.json", latin)

    sealed = json.loads((root / "planted-nlu" / "manifest.json").read_text())
    lines = (root / "planted-nlu" / "train.jsonl").read_text().splitlines(keepends=True)
    entry = {**sealed["canaries"][0], "secret": [f"{MARK}x", f"{MARK}y"]}
    text = {**sealed["canaries"][0], "pattern": SPOKEN}
    for name, file, content in [
        ("changed", "manifest.json", {**sealed, "canaries": [text, *sealed["canaries"][1:]]}),
        ("word", "manifest.json", {**sealed, "canaries": [entry, *sealed["canaries"][1:]]}),
        ("gone", "train.jsonl", "".join(line for line in lines if "PinIntent" not in line)),
    ]:
        data = content if isinstance(content, str) else json.dumps(content)
        _damaged(root / "planted-nlu", root / f"planted-nlu-{name}", file, data.encode())


def _runs(root: Path) -> None:
    summary = json.loads((root / "run" / "summary.json").read_text())
    word = dict.fromkeys(summary, SPOKEN)
    _damaged(root / "run", root / "run-word", "summary.json", json.dumps(word).encode())
    _damaged(root / "run", root / "run-keys", "summary.json", json.dumps({SPOKEN: 1}).encode())


def _damaged(sound: Path, copy: Path, file: str, content: bytes) -> None:
    shutil.copytree(sound, copy)
    (copy / file).write_bytes(content)
