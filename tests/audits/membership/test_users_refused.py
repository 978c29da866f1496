"""What an audit of users refuses: one message with its remedy, and nothing is written."""

import numpy as np
import pytest

from tests.audits.chains import Chain
from tests.audits.membership.made_users import texts_of, users
from tests.models.narrowed import narrow
from vestige.data.corpus import Corpus
from vestige.errors import VestigeError
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

CHAIN = Chain(20, 1.0)
FLAT = np.full((22, 22), 1 / 22)
MODEL = TableModel(FLAT[0], FLAT, CHAIN.vocabulary)
CONFIG = Seq2SeqConfig(embedding_size=4, hidden_size=4)
TRANSLATOR = Seq2SeqModel(CHAIN.vocabulary, CHAIN.vocabulary, CONFIG)
PEOPLE = [f"person {n:02}" for n in range(40)]
AUDITED = texts_of(["me", "you"], CHAIN.words, seed=1)
REFERENCE = texts_of(PEOPLE, CHAIN.words, seed=2)
UNKNOWN = texts_of(PEOPLE, ("nor", "that", "but"), seed=3)
WITHOUT_USERS = Corpus.from_texts(list(REFERENCE))
SHADOWS = {"shadows": 2, "epochs": 1, "hidden_size": 4}


def service(contexts):
    """Lists the same three words after every context."""
    return [["w1", "w2", "w3"]] * len(contexts)


def audit(model=MODEL, texts=AUDITED, **options):
    return users(model, texts, **{"reference": REFERENCE, "shadows": 0, **options})


LOCAL = {
    "queries and calls": ({"queries": 1, "calls": 2}, "`calls` must be left out with `queries`"),
    "select without a number": ({"select": "rare"}, "must come with `queries` or `calls`"),
    "select informative without shadow models": (
        {"select": "informative", "calls": 3}, "needs shadow models"),
    "alpha": ({"alpha": 1.0}, "`alpha` must be less than 1"),
    "top_k": ({"top_k": 23}, r"`top_k` must lie in \[1, 22\], got 23"),
    "a blank person": ({"person": " "}, "`person` must be a name"),
    "one shadow model": ({"shadows": 1}, "`shadows` must be 0, 2 or more"),
    "two sizes": (
        {"shadows": 2, "other_shapes": True, "hidden_size": 3}, "does not go with `other_shapes`"),
    "processes and a cluster": (
        {"processes": 2, "cluster": "auto"}, "`processes` does not go with `cluster`"),
    "the name of a random user": (
        {"person": "artificial 07", "reference": WITHOUT_USERS, "random_users": 40},
        "1 user is in both `texts` and `reference`"),
    "more random users than texts": (
        {"reference": WITHOUT_USERS, "random_users": 999}, "cannot be split into 999"),
    "too few calls to fit on": ({"calls": 2, "select": "random"}, "200 are needed"),
    "unknown words": (
        {"texts": UNKNOWN.take([0, 1]), "person": "me", "reference": UNKNOWN},
        "the vocabulary knows no word of the texts"),
    "a translator without sources": (
        {"model": TRANSLATOR}, "`texts` has no column with what each text answers or translates"),
    "no model": ({"model": 3}, "neither a model nor a function"),
    "a remote option": ({"budget": 7}, "`budget` needs a remote model"),
    "an option of a function": ({"task": "dialogue"}, "`task` needs a remote model"),
    "calls with a base": ({"base": MODEL, "calls": 5}, "`calls` does not go with `base`"),
    "training with a base": ({"base": MODEL, "epochs": 3}, "`epochs` does not go with `base`"),
    "select informative with a base": (
        {"base": MODEL, "select": "informative", "queries": 3}, "`select` informative"),
}  # fmt: skip

REMOTE = {
    "base": ({"base": MODEL}, "`base` needs a local model"),
    "no top_k": ({"top_k": None}, "`top_k` must be given for a remote model"),
    "token_budget": (
        {"model": narrow(MODEL, k=3), "token_budget": 9}, "`token_budget` needs a server"),
    "budget": ({"budget": 70}, r"`budget` 70 is too small"),
    "the task of a server": (
        {"model": "openai:http://127.0.0.1:9#m", "task": "dialogue"}, "must be next-word for a"),
    "a dictionary": ({"model": lambda _: {"words": ["w1"]}}, "returned dict instead of a list"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [*LOCAL.values(), *(({"model": service, "top_k": 3} | o, m) for o, m in REMOTE.values())],
    ids=[*LOCAL, *(f"remote: {name}" for name in REMOTE)],
)
def test_a_refused_audit_writes_nothing(options, message, tmp_path):
    with pytest.raises((ValueError, VestigeError), match=message):
        audit(**options, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:ask", "No module named 'nowhere_at_all'"),
        ("service_that_fails:ask", "raised KeyError: 'token'"),
        ("service_that_leaves:ask", "raised SystemExit"),
        ("service_of_three:none", "has no 'none'"),
        ("service_of_three:K", "is int and cannot be called"),
    ],
)
def test_a_module_without_a_usable_function_is_refused(name, message, tmp_path, monkeypatch):
    (tmp_path / "service_that_fails.py").write_text("raise KeyError('token')\n")
    (tmp_path / "service_that_leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "service_of_three.py").write_text("K = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(VestigeError, match=message):
        audit(name, top_k=3)


@pytest.mark.parametrize(("option", "folder"), [("out", "notes/out"), ("shadow_dir", "notes")])
def test_a_file_is_not_replaced_by_a_folder(option, folder, tmp_path):
    (tmp_path / "notes").write_text("content")
    with pytest.raises(VestigeError, match="notes"):
        audit(**SHADOWS, **{option: tmp_path / folder})
    assert (tmp_path / "notes").read_text() == "content"


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_refused():
    with pytest.raises(VestigeError, match="Ray"):
        audit(**SHADOWS, cluster="127.0.0.1:1")
