"""Bad input of `vestige membership --unit user`: a clear message, code 2, nothing written."""

import json

import numpy as np
import pytest

from tests.cli.refusals import listing, refused
from tests.cli.shell import invoke
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import save_model
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

WORDS = tuple(f"w{n}" for n in range(20))
PLAIN = "--texts W/mine.jsonl --reference W/others.jsonl --user who --shadows 0"
TEXTS = "W/model --reference W/others.jsonl --user who --shadows 0 --texts"
REFERENCE = "W/model --texts W/mine.jsonl --user who --shadows 0 --reference"
TINY = "--epochs 1 --hidden-size 4"
SERVICE = f"{PLAIN} --top-k 3"

# The words after `vestige membership --unit user` (W/ the folder), and what the message must say.
CASES = {
    "no texts there": (f"{TEXTS} W/none.jsonl", "none.jsonl does not exist"),
    "no reference there": (f"{REFERENCE} W/none.jsonl", "none.jsonl does not exist"),
    "empty texts": (f"{TEXTS} W/empty.jsonl", "empty.jsonl"),
    "blank texts": (f"{TEXTS} W/blank.jsonl", "blank.jsonl"),
    "a cut line": (f"{TEXTS} W/cut.jsonl", "cut.jsonl, line 2: invalid JSON"),
    "a list in place of an object": (f"{REFERENCE} W/list.jsonl", "list.jsonl, line 1: list"),
    "no text column": (f"{TEXTS} W/body.jsonl", 'has no column "text"'),
    "text that is a number": (f"{TEXTS} W/numbers.jsonl", 'line 1: "text" is int, not text'),
    "a text that is missing": (f"{TEXTS} W/null.jsonl", 'have no "text"; the first is row 1'),
    "users that are numbers": (f"{TEXTS} W/who-numbers.jsonl", 'line 1: "who" is int, not text'),
    "texts without a name": (f"{TEXTS} W/nobody.jsonl", "every text has an empty user"),
    "bytes that are no text": (f"{TEXTS} W/latin1.jsonl", "latin1.jsonl"),
    "an unknown ending": (f"{TEXTS} W/odd.xyz", "Pass --format"),
    "an unknown format": (f"{TEXTS} W/mine.jsonl --format tablet", "format must be one of"),
    "a reference of nobody": (
        "W/model --texts W/mine.jsonl --reference W/others.jsonl --shadows 0",
        "has no user column. Name the column (--user)",
    ),
    "a user column nowhere": (
        "W/model --texts W/mine.jsonl --reference W/others.jsonl --user writer --shadows 0",
        'others.jsonl has no column "writer"',
    ),
    "an empty person": (f"{TEXTS} W/mine.jsonl --person=", "--person must be a name, got blanks"),
    "somebody in both": (f"{TEXTS} W/others.jsonl", "40 users are in both --texts and --reference"),
    "the name of a random user": (
        "W/model --texts W/mine.jsonl --person artificial_07 --reference W/others.jsonl "
        "--random-users 40 --shadows 0",
        "1 user is in both --texts and --reference",
    ),
    "more random users than texts": (
        "W/model --texts W/mine.jsonl --reference W/others.jsonl --random-users 999 --shadows 0",
        "cannot be split into 999 users",
    ),
    "one random user": (f"W/model {PLAIN} --random-users 1", "--random-users"),
    "two people to compare with": (f"{REFERENCE} W/two.jsonl", "4 or more are needed"),
    "nine people to compare with": (
        f"{REFERENCE} W/nine.jsonl",
        "a p-value of 0.05 needs 19. Give texts of 37 people or more",
    ),
    "too few words to learn from": (f"{REFERENCE} W/short.jsonl", "are too few; 200 are needed"),
    "too few calls to learn from": (f"W/model {PLAIN} --calls 2 --select random", "200 are needed"),
    "texts of unknown words": (f"{TEXTS} W/foreign.jsonl", "has no word that the model knows"),
    "only unknown words": (
        "W/model --texts W/foreign.jsonl --reference W/foreign-others.jsonl --user who --shadows 0",
        "the vocabulary knows no word of the texts",
    ),
    "no words shown": (f"W/model {PLAIN} --top-k 0", "--top-k"),
    "more words than there are": (f"W/model {PLAIN} --top-k 23", "lie in [1, 22], got 23"),
    "no text asked about": (f"W/model {PLAIN} --queries 0", "--queries"),
    "fewer calls than none": (f"W/model {PLAIN} --calls -4", "--calls"),
    "texts and calls": (f"W/model {PLAIN} --queries 1 --calls 2", "left out with --queries"),
    "a choice of nothing": (f"W/model {PLAIN} --select rare", "come with --queries or --calls"),
    "a choice of all": (f"W/model {PLAIN} --select all --calls 2", "with another --select"),
    "an unknown choice": (
        f"W/model {PLAIN} --select best --calls 2",
        "--select",
    ),
    "informative without shadows": (
        f"W/model {PLAIN} --select informative --calls 2",
        "needs shadow models",
    ),
    "an alpha that is no number": (f"W/model {PLAIN} --alpha nan", "--alpha must be"),
    "an alpha of one": (f"W/model {PLAIN} --alpha 1", "--alpha must be above 0 and below 1"),
    "an alpha below zero": (f"W/model {PLAIN} --alpha -0.1", "--alpha must be above 0 and below 1"),
    "a negative seed": (f"W/model {PLAIN} --seed -1", "--seed"),
    "one shadow": (f"W/model {PLAIN} --shadows 1", "must be 0, 2 or more, got 1"),
    "fewer shadows than none": (f"W/model {PLAIN} --shadows -2", "--shadows"),
    "no epochs": (f"W/model {PLAIN} --shadows 2 --epochs 0", "--epochs"),
    "a learning rate of nothing": (
        f"W/model {PLAIN} --shadows 2 --learning-rate 0",
        "--learning-rate must be above 0",
    ),
    "a size for other shapes": (
        f"W/model {PLAIN} --shadows 2 --other-shapes --hidden-size 4",
        "--hidden-size does not go with --other-shapes",
    ),
    "processes of a cluster": (
        f"W/model {PLAIN} --processes 2 --cluster auto",
        "--processes does not go with --cluster",
    ),
    "a cluster that does not answer": (
        f"W/model {PLAIN} --shadows 2 {TINY} --cluster 127.0.0.1:1",
        "Ray",
    ),
    "shadows in a file": (
        f"W/model {PLAIN} --shadows 2 {TINY} --shadow-dir W/letter",
        "letter",
    ),
    "another audit there": (f"W/model {PLAIN} --alpha 0.2 --out W/audit", "exists already"),
    "something else there": (f"W/model {PLAIN} --out W/model", "exists already"),
    "a file there": (f"W/model {PLAIN} --out W/letter", "exists already"),
    "a place below a file": (f"W/model {PLAIN} --out W/letter/out", "letter"),
    "no model": (f"W/none {PLAIN}", "none does not exist"),
    "a folder without a model": (f"W/folder {PLAIN}", "folder"),
    "a pickled model": (f"W/pickled {PLAIN}", "pickled"),
    "a model of intents": (f"W/intents {PLAIN}", "is an intent-and-slot model"),
    "an unknown device": (f"W/model {PLAIN} --device abacus", "abacus"),
    "a translator without sources": (
        f"W/translator {PLAIN}",
        "--texts has no column with what each text answers or translates",
    ),
    "sources that are not there": (f"W/translator {PLAIN} --source said", 'no column "said"'),
    "a budget for our own model": (f"W/model {PLAIN} --budget 9", "--budget needs a remote model"),
    "a task for our own model": (f"W/model {PLAIN} --task dialogue", "--task needs a remote model"),
    "a service of unknown k": (f"services_of_tests:well {PLAIN}", "--top-k must be given"),
    "a budget of nothing": (f"services_of_tests:well {SERVICE} --budget 0", "--budget"),
    "a budget too small": (
        f"services_of_tests:well {SERVICE} --budget 70",
        "--budget 70 is too small: this audit needs 571 queries",
    ),
    "a budget too small for calls": (
        f"services_of_tests:well {SERVICE} --shadows 2 --calls 20 --budget 70",
        "needs up to 621 queries",
    ),
    "a timeout of no time": (f"services_of_tests:well {SERVICE} --timeout 0", "--timeout must"),
    "a timeout that is no number": (f"services_of_tests:well {SERVICE} --timeout nan", "--timeout"),
    "a vocabulary of two": (f"services_of_tests:well {SERVICE} --vocabulary-size 2", "--vocab"),
    "a module nowhere": (f"nowhere_at_all:ask {SERVICE}", "No module named 'nowhere_at_all'"),
    "a module that fails": (f"failing_service_of_tests:ask {SERVICE}", "raised KeyError: 'token'"),
    "a module that leaves": (f"leaving_service_of_tests:ask {SERVICE}", "raised SystemExit"),
    "a function nowhere": (f"services_of_tests:none {SERVICE}", "has no 'none'"),
    "what cannot be called": (f"services_of_tests:K {SERVICE}", "is int and cannot be called"),
    "a dictionary": (f"services_of_tests:mapping {SERVICE}", "returned dict instead of a list"),
    "too few lists": (f"services_of_tests:few {SERVICE}", "returned 1 answers for 16 contexts"),
    "a word in place of words": (f"services_of_tests:word {SERVICE}", "str instead of a list"),
    "numbers in place of words": (f"services_of_tests:numbers {SERVICE}", "int instead of a word"),
    "a dialogue without sources": (
        f"services_of_tests:well {SERVICE} --task dialogue",
        "what each text answers or translates",
    ),
}

SERVICES = """
K = 3
def well(contexts): return [["w1", "w2", "w3"]] * len(contexts)
def mapping(contexts): return {"words": ["w1"]}
def few(contexts): return [["w1"]]
def word(contexts): return ["w1"] * len(contexts)
def numbers(contexts): return [[1, 2]] * len(contexts)
"""


def rows(users, *, words=WORDS, texts=3, length=8, seed=0):
    """Random texts of some users."""
    chance = np.random.default_rng(seed)
    return [
        {"who": user, "text": " ".join(chance.choice(words, length))}
        for user in users
        for _ in range(texts)
    ]


def put(path, entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("audit")
    _texts(root)
    _models(root)
    (root / "services_of_tests.py").write_text(SERVICES)
    (root / "failing_service_of_tests.py").write_text("raise KeyError('token')\n")
    (root / "leaving_service_of_tests.py").write_text("import sys\nsys.exit(3)\n")
    (root / "letter").write_text("mine")
    words = f"membership W/model --unit user {PLAIN} --out W/audit".replace(
        "W/", f"{root}/"
    ).split()
    done = invoke(words)
    assert done.finished, done.stderr
    return root


def _texts(root):
    names = [f"person {n:02}" for n in range(40)]
    mine = rows(["me"], seed=1)
    put(root / "others.jsonl", rows(names))
    put(root / "mine.jsonl", [{"text": row["text"]} for row in mine])
    put(root / "yours.jsonl", [{"text": row["text"]} for row in rows(["you"], seed=2)])
    put(root / "two.jsonl", rows(names[:2]))
    put(root / "nine.jsonl", rows(names[:9], length=60))
    put(root / "short.jsonl", rows(names[:40], texts=1))
    put(root / "foreign.jsonl", [{"text": "nobody knows this"}])
    put(root / "foreign-others.jsonl", rows(names, words=("nor", "that")))
    put(root / "body.jsonl", [{"body": "w1"}])
    put(root / "numbers.jsonl", [{"text": 1}])
    put(root / "null.jsonl", [{"text": None}, {"text": "w1"}])
    put(root / "who-numbers.jsonl", [{"text": "w1", "who": 7}])
    put(root / "nobody.jsonl", [{"text": "w1 w2", "who": ""}])
    (root / "cut.jsonl").write_text('{"text": "one"}\n{"text": "tw')
    (root / "list.jsonl").write_text("[1, 2]\n")
    (root / "empty.jsonl").write_text("")
    (root / "blank.jsonl").write_text('{"text": " "}\n')
    (root / "latin1.jsonl").write_bytes('{"text": "caf\u00e9"}\n'.encode("latin-1"))
    (root / "odd.xyz").write_text("what am I")


def _models(root):
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    chance = np.random.default_rng(0)
    flat = np.full(len(vocabulary), 1.0)
    save_model(TableModel(chance.dirichlet(flat), chance.dirichlet(flat, len(flat)), vocabulary),
               root / "model")  # fmt: skip
    shape = Seq2SeqConfig(embedding_size=4, hidden_size=4)
    save_model(Seq2SeqModel(vocabulary, vocabulary, shape), root / "translator")
    intents = IntentSlotConfig(intents=("Play", "Stop"), tags=("O", "B-song"), hidden_size=4)
    save_model(IntentSlotModel(vocabulary, intents), root / "intents")
    (root / "folder").mkdir()
    (root / "pickled").mkdir()
    (root / "pickled" / "config.json").write_text('{"model_type": "gpt2"}')
    (root / "pickled" / "pytorch_model.bin").write_bytes(b"\x80\x04N.")


def files(root):
    """All but caches of imports and locks."""
    found = listing(root, locks=True).items()
    return {p: at for p, at in found if p.suffix != ".lock" and "__pycache__" not in p.parts}


@pytest.mark.parametrize(("words", "says"), CASES.values(), ids=CASES)
def test_bad_input_is_refused_in_one_line(shell, folder, tmp_path, monkeypatch, words, says):
    monkeypatch.syspath_prepend(str(folder))
    asked = [word.replace("_07", " 07").replace("W/", f"{folder}/") for word in words.split(" ")]
    if "--out" not in asked:
        asked += ["--out", str(tmp_path / "out")]
    given = ["membership", *asked, "--unit", "user"]
    refused(shell, given, says, unchanged=lambda: files(folder))
    assert not (tmp_path / "out").exists()
