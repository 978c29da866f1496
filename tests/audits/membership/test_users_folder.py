"""Unfinished work of an audit of users stays only if it cost time or queries."""

import numpy as np
import pytest

from tests.audits.told import Told
from tests.models.narrowed import narrow
from vestige.audits.membership import ranked_users
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import RunError
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.store import KEPT

from .queried import users

WORDS = tuple(f"w{n}" for n in range(20))
TINY = {"shadows": 2, "epochs": 1, "hidden_size": 4}


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(4)]
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 8)) for _ in owners], users=owners)


MINE = texts_of(["me", "you"], seed=1)
OTHERS = texts_of([f"person {n:02}" for n in range(40)], seed=2)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *WORDS)), config).eval()


class Stop(Told):
    """A monitor that interrupts at the first line that contains some text, as Ctrl-C does."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def log(self, text):
        super().log(text)
        if self.at in text:
            raise KeyboardInterrupt


def interrupted(model, out, **named):
    """The notes of the interruption."""
    with pytest.raises(KeyboardInterrupt) as caught:
        users(model, MINE, **{"reference": OTHERS, "shadows": 0, "out": out, **named})
    return getattr(caught.value, "__notes__", [])


def test_what_is_there_already_is_refused_and_left_alone(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(RunError, match=f"{name} exists already"):
            users(model, MINE, reference=OTHERS, shadows=0, out=tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_an_audit_without_finished_work_leaves_nothing(model, tmp_path, monkeypatch):
    def killed(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(ranked_users, "ranks_of", killed)
    assert interrupted(model, tmp_path / "out") == []
    assert list(tmp_path.iterdir()) == []


def test_ranks_are_kept_and_the_interruption_says_so(model, tmp_path):
    assert interrupted(model, tmp_path / "out", monitor=Stop("Comparing")) == [KEPT]
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]


def test_shadow_models_are_kept_and_the_interruption_says_so(model, tmp_path):
    stop = Stop("trained shadow")
    options = {**TINY, "select": "informative", "calls": 24}  # shadow models come first
    assert interrupted(model, tmp_path / "out", monitor=stop, **options) == [KEPT]
    assert {path.name for path in tmp_path.iterdir()} == {"out.partial", "out.shadows"}
    log = Told()
    users(model, MINE, reference=OTHERS, out=tmp_path / "out", monitor=log, **options)
    assert sum("trained shadow" in line for line in log.lines) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.shadows"}


def test_answers_and_paid_calls_are_kept_and_nothing_is_asked_again(model, tmp_path):
    seen, shown = [], narrow(model, k=5)

    def ask(contexts):
        if len(seen) == 2:
            seen.append([])
            raise KeyboardInterrupt
        seen.append([context.words for context in contexts])
        return shown.likeliest(contexts)

    assert interrupted(ask, tmp_path / "out", top_k=5) == [KEPT]
    found = users(ask, MINE, reference=OTHERS, shadows=0, top_k=5, out=tmp_path / "out")
    asked = [words for group in seen for words in group]
    assert len(asked) == len(set(asked))
    assert found.summary["queries"] == len(asked) + 16  # those of the interrupted call
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
