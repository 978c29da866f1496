"""What an audit of users refuses: one message with its remedy, and nothing is written."""

import numpy as np
import pytest

from tests.audits.chains import Chain
from tests.audits.membership.made_users import users
from tests.models.narrowed import narrow
from vestige.data.corpus import Corpus
from vestige.errors import VestigeError
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel

CHAIN = Chain(20, 1.0)
FLAT = np.full((22, 22), 1 / 22)
MODEL = TableModel(FLAT[0], FLAT, CHAIN.vocabulary)
TRANSLATOR = Seq2SeqModel(
    CHAIN.vocabulary, CHAIN.vocabulary, Seq2SeqConfig(embedding_size=4, hidden_size=4)
)


def texts_of(names, *, words=CHAIN.words, seed):
    """Four texts of eight random words of each user."""
    rng = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(4)]
    return Corpus.from_texts([" ".join(rng.choice(words, 8)) for _ in owners], users=owners)


MINE = texts_of(["me", "you"], seed=1)
OTHERS = texts_of([f"person {n:02}" for n in range(40)], seed=2)
FOREIGN = texts_of([f"person {n:02}" for n in range(40)], words=("nor", "that", "but"), seed=3)
NOBODY = Corpus.from_texts(list(OTHERS))


def service(contexts):
    """Lists the same three words after every context."""
    return [["w1", "w2", "w3"]] * len(contexts)


def audit(model=MODEL, texts=MINE, **given):
    return users(model, texts, **{"reference": OTHERS, "shadows": 0, **given})


LOCAL = {
    "single words of whole texts": (
        {"queries": 1, "calls": 2}, "`calls` must be left out with `queries`"),
    "a selection of nothing": ({"select": "rare"}, "must come with `queries` or `calls`"),
    "a selection by no shadow model": (
        {"select": "informative", "calls": 3}, "needs shadow models"),
    "a level of one": ({"alpha": 1.0}, "`alpha` must be less than 1"),
    "more words than there are": ({"top_k": 23}, r"`top_k` must lie in \[1, 22\], got 23"),
    "a blank name": ({"person": " "}, "`person` must be a name"),
    "one shadow model": ({"shadows": 1}, "`shadows` must be 0, 2 or more"),
    "two ways to choose a size": (
        {"shadows": 2, "other_shapes": True, "hidden_size": 3}, "does not go with `other_shapes`"),
    "two ways to train": (
        {"processes": 2, "cluster": "auto"}, "`processes` does not go with `cluster`"),
    "somebody on both sides": ({"reference": OTHERS + MINE}, "2 users are in both"),
    "the name of a random user": (
        {"person": "artificial 07", "reference": NOBODY, "random_users": 40},
        "1 user is in both `texts` and `reference`"),
    "more random users than texts": (
        {"reference": NOBODY, "random_users": 999}, "cannot be split into 999"),
    "too few calls to learn from": ({"calls": 2, "select": "random"}, "200 are needed"),
    "only unknown words": (
        {"texts": FOREIGN.take([0, 1]), "person": "me", "reference": FOREIGN},
        "the vocabulary knows no word of the texts"),
    "a translator without sources": (
        {"model": TRANSLATOR}, "`texts` has no column with what each text answers or translates"),
    "no model": ({"model": 3}, "neither a model nor a function"),
    **{f"{name} of a local model": ({name: value}, f"`{name}` needs a remote model")
       for name, value in {
           "budget": 7, "timeout": 7.0, "attempts": 7, "task": "dialogue", "vocabulary_size": 7,
           "tokenizer": "words"}.items()},
    **{f"{name} with a base": ({"base": MODEL, name: value}, f"`{name}` does not go with `base`")
       for name, value in {"calls": 5, "epochs": 3}.items()},
    "a selection of tokens with a base": (
        {"base": MODEL, "select": "informative", "queries": 3}, "`select` informative"),
}  # fmt: skip

REMOTE = {
    "a base": ({"base": MODEL}, "`base` needs a local model"),
    "lists of unknown length": ({"top_k": None}, "`top_k` must be given for a remote model"),
    "tokens of a function": (
        {"model": narrow(MODEL, k=3), "token_budget": 9}, "`token_budget` needs a server"),
    "a small budget": ({"budget": 70}, r"`budget` 70 is too small: this audit needs \d+ queries"),
    "a small budget for calls": (
        {"budget": 70, "shadows": 2, "calls": 20}, r"needs up to \d+ queries"),
    "a dialogue without sources": ({"task": "dialogue"}, "what each text answers or"),
    "a task of a server": (
        {"model": "openai:http://127.0.0.1:9#m", "task": "dialogue"}, "must be next-word for a"),
    "a dictionary": ({"model": lambda _: {"words": ["w1"]}}, "returned dict instead of a list"),
    "too few lists": ({"model": lambda _: [["w1"]]}, "returned 1 answers for 16 contexts"),
    "a word for each context": (
        {"model": lambda contexts: ["w1"] * len(contexts)}, "str instead of a list"),
    "numbers": (
        {"model": lambda contexts: [[1, 2]] * len(contexts)}, "int instead of a word"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), LOCAL.values(), ids=LOCAL)
def test_an_audit_of_a_local_model_is_refused(given, message, tmp_path):
    with pytest.raises((ValueError, VestigeError), match=message):
        audit(**given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("given", "message"), REMOTE.values(), ids=REMOTE)
def test_an_audit_of_a_function_is_refused(given, message, tmp_path):
    with pytest.raises((ValueError, VestigeError), match=message):
        audit(**{"model": service, "top_k": 3, **given}, out=tmp_path / "out")
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


@pytest.mark.parametrize("option", ["out", "shadow_dir"])
def test_a_folder_in_the_place_of_a_file_is_refused(option, tmp_path):
    (tmp_path / "letter").write_text("mine")
    index = tmp_path / "letter" if option == "shadow_dir" else tmp_path / "letter" / "out"
    with pytest.raises(VestigeError, match="letter"):
        audit(**{"shadows": 2, "epochs": 1, "hidden_size": 4, option: index})
    assert (tmp_path / "letter").read_text() == "mine"


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_refused():
    with pytest.raises(VestigeError, match="Ray"):
        audit(shadows=2, epochs=1, hidden_size=4, cluster="127.0.0.1:1")
