"""Bad input of `vestige membership --unit user`: a clear message, code 2, nothing written."""

import json

import numpy as np
import pytest

from tests.cli.refusals import listing, refused
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

WORDS = tuple(f"w{n}" for n in range(20))
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
USUAL = "--texts W/mine.jsonl --reference W/others.jsonl --user who --shadows 0"
PLAIN = f"W/model {USUAL}"
TEXTS = "W/model --reference W/others.jsonl --user who --shadows 0 --texts"
REFERENCE = "W/model --texts W/mine.jsonl --user who --shadows 0 --reference"
NOBODY = "W/model --texts W/mine.jsonl --reference W/others.jsonl --shadows 0"
TRAINED = f"{PLAIN} --shadows 2 --epochs 1 --hidden-size 4"
ASKED = f"{USUAL} --top-k 3"
WELL = f"services_of_tests:well {ASKED}"

# The words after `vestige membership --unit user` (W/ the folder), and what the message must say.
CASES = {
    "no text column": (f"{TEXTS} W/body.jsonl", 'has no column "text"'),
    "a reference of nobody": (NOBODY, "has no user column. Name the column (--user)"),
    "a user column nowhere": (f"{NOBODY} --user writer", 'others.jsonl has no column "writer"'),
    "somebody in both": (f"{TEXTS} W/others.jsonl", "40 users are in both --texts and --reference"),
    "the name of a random user": (
        f"{NOBODY} --person artificial_07 --random-users 40",
        "1 user is in both --texts and --reference",
    ),
    "more random users than texts": (f"{NOBODY} --random-users 999", "cannot be split into 999"),
    "two people to compare with": (f"{REFERENCE} W/two.jsonl", "4 or more are needed"),
    "nine people to compare with": (
        f"{REFERENCE} W/nine.jsonl",
        "a p-value of 0.05 needs 19. Give texts of 37 people or more",
    ),
    "too few words to learn from": (f"{REFERENCE} W/short.jsonl", "are too few; 200 are needed"),
    "too few calls to learn from": (f"{PLAIN} --calls 2 --select random", "200 are needed"),
    "texts of unknown words": (f"{TEXTS} W/foreign.jsonl", "has no word that the model knows"),
    "only unknown words": (
        "W/model --texts W/foreign.jsonl --reference W/foreign-others.jsonl --user who --shadows 0",
        "the vocabulary knows no word of the texts",
    ),
    "more words than there are": (f"{PLAIN} --top-k 23", "lie in [1, 22], got 23"),
    "a choice of nothing": (f"{PLAIN} --select rare", "come with --queries or --calls"),
    "a cluster that does not answer": (f"{TRAINED} --cluster 127.0.0.1:1", "Ray"),
    "shadows in a file": (f"{TRAINED} --shadow-dir W/letter", "letter"),
    "a place below a file": (f"{PLAIN} --out W/letter/out", "letter"),
    "a translator without sources": (
        f"W/translator {USUAL}",
        "--texts has no column with what each text answers or translates",
    ),
    "sources that are not there": (f"W/translator {USUAL} --source said", 'no column "said"'),
    "a service of unknown k": (f"services_of_tests:well {USUAL}", "--top-k must be given"),
    "a budget too small": (
        f"{WELL} --budget 70",
        "--budget 70 is too small: this audit needs 571 queries",
    ),
    "a budget too small for calls": (
        f"{WELL} --shadows 2 --calls 20 --budget 70",
        "needs up to 621 queries",
    ),
    "a module nowhere": (f"nowhere_at_all:ask {ASKED}", "No module named 'nowhere_at_all'"),
    "a module that fails": (f"failing_service_of_tests:ask {ASKED}", "raised KeyError: 'token'"),
    "a module that leaves": (f"leaving_service_of_tests:ask {ASKED}", "raised SystemExit"),
    "a function nowhere": (f"services_of_tests:none {ASKED}", "has no 'none'"),
    "what cannot be called": (f"services_of_tests:K {ASKED}", "is int and cannot be called"),
    "a dictionary": (f"services_of_tests:mapping {ASKED}", "returned dict instead of a list"),
    "too few lists": (f"services_of_tests:few {ASKED}", "returned 1 answers for 16 contexts"),
    "a word in place of words": (f"services_of_tests:word {ASKED}", "str instead of a list"),
    "numbers in place of words": (f"services_of_tests:numbers {ASKED}", "int instead of a word"),
    "a dialogue without sources": (f"{WELL} --task dialogue", "what each text answers or"),
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("audit")
    names = [f"person {n:02}" for n in range(40)]
    for name, entries in {
        "others": rows(names),
        "mine": [{"text": row["text"]} for row in rows(["me"], seed=1)],
        "two": rows(names[:2]),
        "nine": rows(names[:9], length=60),
        "short": rows(names, texts=1),
        "foreign": [{"text": "nobody knows this"}],
        "foreign-others": rows(names, words=("nor", "that")),
        "body": [{"body": "w1"}],
    }.items():
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (root / f"{name}.jsonl").write_text(lines)
    flat = np.full(len(VOCABULARY), 1.0)
    chance = np.random.default_rng(0)
    table = TableModel(chance.dirichlet(flat), chance.dirichlet(flat, len(flat)), VOCABULARY)
    save_model(table, root / "model")
    shape = Seq2SeqConfig(embedding_size=4, hidden_size=4)
    save_model(Seq2SeqModel(VOCABULARY, VOCABULARY, shape), root / "translator")
    (root / "services_of_tests.py").write_text(SERVICES)
    (root / "failing_service_of_tests.py").write_text("raise KeyError('token')\n")
    (root / "leaving_service_of_tests.py").write_text("import sys\nsys.exit(3)\n")
    (root / "letter").write_text("mine")
    return root


def files(root):
    """All but caches of imports and locks."""
    found = listing(root, locks=True).items()
    return {p: at for p, at in found if p.suffix != ".lock" and "__pycache__" not in p.parts}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), CASES.values(), ids=CASES)
def test_bad_input_is_refused_in_one_line(shell, folder, tmp_path, monkeypatch, words, says):
    monkeypatch.syspath_prepend(str(folder))
    asked = [word.replace("_07", " 07").replace("W/", f"{folder}/") for word in words.split(" ")]
    if "--out" not in asked:
        asked += ["--out", str(tmp_path / "out")]
    given = ["membership", *asked, "--unit", "user"]
    refused(shell, given, says, unchanged=lambda: files(folder))
    assert not (tmp_path / "out").exists()
