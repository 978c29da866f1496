"""An audit of users queries a server as it reads a model: the same result, nothing paid twice."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from tests.audits.told import Told
from tests.cli.shell import invoke
from tests.models.narrowed import narrow
from tests.models.served import FAULTS, KEY, Served, failing, serving
from vestige.audits.membership.service import ENDINGS, server_cost
from vestige.audits.update.diff import diff
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.remote.options import RemoteOptions
from vestige.models.top_k import Context

from .queried import users

pytest.importorskip("openai")

WORDS = tuple(f"w{n}" for n in range(12))
"""Few, so that texts begin alike and little is asked; enough that few are near-duplicates."""
TEXTS_EACH = 6

CONTROL = re.compile(r"The \w+ \w+ on \w+ and \w+ by \w+ that the \w+ \w+ be")
"""A sentence that a probe draws."""


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(TEXTS_EACH)]
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 6)) for _ in owners], users=owners)


MINE = texts_of(["me"], seed=1)
OTHERS = texts_of([f"person {n:02}" for n in range(40)], seed=2)


class OfWords(Served):
    """A server of a model of words, each a token with the blank before it."""

    def piece(self, token):
        return " " + super().piece(token)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *WORDS)), config).eval()


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def audit(target, **given):
    usual = {"reference": OTHERS, "shadows": 0, "top_k": 3, "queries": 5}
    return users(target, MINE, **{**usual, **given})


def test_an_endpoint_gives_the_audit_that_its_model_gives(model, tmp_path):
    served, told = OfWords(model), Told()
    with serving(served) as url:
        found = audit(f"openai:{url}#small", out=tmp_path / "out", monitor=told)
    assert found.rows == audit(narrow(model, k=3)).rows
    counted = found.summary
    assert counted["calls"] == len(served.asked)
    assert counted["tokens"] > 0
    assert counted["listed_pieces"] == 0
    cost = next(line for line in told.lines if line.startswith("Plan: "))
    assert told.lines.index(cost) < next(
        n for n, line in enumerate(told.lines) if "The server's model is" in line
    )
    assert not [
        file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()
    ]


def test_an_audit_behind_a_failing_proxy_is_the_same(model, tmp_path):
    with serving(OfWords(model)) as upstream:
        plain = audit(f"openai:{upstream}#small")
        with failing(upstream, FAULTS["rate limit"], every=9) as (url, faults):
            found = audit(f"openai:{url}#small", out=tmp_path / "out", timeout=0.5, attempts=8)
    assert faults
    assert found.rows == plain.rows


@pytest.mark.slow
def test_a_killed_audit_goes_on_and_asks_nothing_twice(model, tmp_path):
    served = OfWords(model, delay=0.002, several=False)
    for name, corpus in (("mine", MINE), ("others", OTHERS)):
        rows = [{"text": t, "who": u} for t, u in zip(corpus, corpus.users, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with serving(served) as url:
        words = [
            *("membership", f"openai:{url}#small", "--unit", "user"),
            *("--texts", tmp_path / "mine.jsonl", "--reference", tmp_path / "others.jsonl"),
            *("--user", "who", "--top-k", "3", "--queries", "5", "--shadows", "0"),
            *("--concurrency", "1", "--out", tmp_path / "out"),
        ]
        command = [sys.executable, "-m", "vestige", *words]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ)
        while len(served.asked) < 60:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        before = len(served.asked)
        done = invoke(words)
        assert done.finished, done.stderr
    asked = Counter(json.dumps(body["prompt"]) for body in served.asked)
    twice = [
        one for one, times in asked.items() if times > 1 and not CONTROL.search(one) and one != '""'
    ]
    assert len(served.asked) > before
    assert len(twice) <= 1  # the one that was under way; the others are the probe's
    assert KEY not in done.stdout + done.stderr


def test_a_budget_that_is_too_small_is_refused_before_the_first_call(model):
    for name in ("budget", "token_budget"):
        served = OfWords(model)
        with serving(served) as url, pytest.raises(DataError, match=f"`{name}` 9 is too small"):
            audit(f"openai:{url}#small", **{name: 9})
        assert served.asked == []


def test_more_words_than_a_server_shows_are_refused(model):
    refused = pytest.raises(DataError, match="`top_k` 3 is more than the 1 tokens")
    with serving(OfWords(model, most=1)) as url, refused:
        audit(f"openai:{url}#small")


@pytest.mark.parametrize("name", ["sk-1234", "", "a b"])
def test_a_key_is_never_an_option(name):
    with pytest.raises(ValueError, match="`key_env` must be the name of an environment variable"):
        RemoteOptions(key_env=name)


def test_a_function_has_no_options_of_a_server(model):
    with pytest.raises(ValueError, match="`token_budget` needs a server"):
        audit(narrow(model, k=3), token_budget=9)


def test_an_endpoint_is_no_model_whose_weights_can_be_asked():
    with pytest.raises(ModelError, match="is a server") as caught:
        diff("openai:http://localhost:9/v1#small", "other")
    assert "membership --unit user" in str(caught.value)


def test_an_upper_bound_of_calls_counts_the_pieces_of_words():
    for k in (1, 3):
        line = server_cost([Context(("w0",)), Context(())], RemoteOptions(), k=k)
        assert f"at most {16 + 2 * k * ENDINGS:,} calls" in line
