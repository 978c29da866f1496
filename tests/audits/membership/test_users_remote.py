"""An audit of users of a function that misbehaves, and of a server: complete, and paid once."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import users
from tests.audits.told import Told
from tests.cli.shell import invoke
from tests.models.narrowed import narrow
from tests.models.served import FAULTS, KEY, Served, failing, serving
from vestige.audits.membership import service as service_module
from vestige.audits.membership.service import ENDINGS, server_cost
from vestige.audits.update.diff import diff
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.remote import retry as retries
from vestige.models.remote.options import RemoteOptions
from vestige.models.top_k import Context
from vestige.store import KEPT, Store

pytest.importorskip("openai")

WORDS = tuple(f"w{n}" for n in range(12))
"""Few, so that texts begin alike and little is queried; enough that few are near-duplicates."""
CONTROL = re.compile(r"The \w+ \w+ on \w+ and \w+ by \w+ that the \w+ \w+ be")
"""A sentence that a probe draws."""


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(6)]
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 6)) for _ in owners], users=owners)


ME = texts_of(["me"], seed=1)
PEOPLE = texts_of([f"person {n:02}" for n in range(40)], seed=2)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *WORDS)), config).eval()


@pytest.fixture
def likeliest(model):
    return narrow(model, k=3).likeliest


@pytest.fixture(autouse=True)
def no_pauses_and_a_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(
        retries.RetryPolicy, "pauses", lambda retry: [0.0] * (retry.attempts - 1) + [None]
    )


def audit(target, **given):
    usual = {"reference": PEOPLE, "shadows": 0, "top_k": 3}
    usual |= {} if given.keys() & {"queries", "calls"} else {"queries": 5}
    return users(target, ME, **{**usual, **given})


# Functions.


def test_a_function_that_always_lists_the_same_words_is_undecided():
    found = audit(lambda contexts: [list(WORDS[:3])] * len(contexts))
    assert found.verdict == UNDECIDED
    assert "alive" in failed(found)


@pytest.mark.slow
def test_failures_are_retried_within_the_budget(likeliest):
    calls = []

    def moody(contexts):
        calls.append(contexts)
        if len(calls) % 9 == 3:
            raise ConnectionError("private")
        return likeliest(contexts)

    found = audit(moody).summary
    assert found["failures"] == found["retries"] > 0
    assert found["words_unanswered"] == 0
    need = audit(likeliest).summary["queries"]
    calls.clear()
    short = audit(moody, budget=need).summary
    assert short["queries"] <= need
    assert short["budget_spent"]
    assert short["words_unanswered"] > 0


@pytest.mark.slow
def test_a_slow_call_is_given_up_and_a_long_one_is_reported(likeliest, monkeypatch):
    calls = []

    def slow(contexts):
        calls.append(contexts)
        if len(calls) == 2:
            time.sleep(1)
        return likeliest(contexts)

    found = audit(slow, timeout=0.5).summary
    assert (found["timeouts"], found["words_unanswered"]) == (1, 0)
    monkeypatch.setattr(service_module, "SILENCE", 0.01)
    calls.clear()
    audit(slow, monitor=(log := Told()))
    assert any("The service has not answered for 0 s" in line for line in log.lines)


@pytest.mark.slow
def test_unknown_words_and_missing_answers_are_counted(likeliest):
    scant = audit(lambda contexts: [[*a[:1], "neverheard"] for a in likeliest(contexts)]).summary
    assert scant["short_lists"] == scant["unknown_words"] == scant["queries"]

    def shy(contexts):
        answers = zip(contexts, likeliest(contexts), strict=True)
        return [None if len(context.words) == 4 else answer for context, answer in answers]

    found = audit(shy)
    assert found.summary["refused"] > 0
    left = found.summary["words_asked"] - found.summary["words_unanswered"]
    assert audited(found, "words").sum() < left < found.summary["words_asked"]


@pytest.mark.slow
@pytest.mark.parametrize("error", [ConnectionError, SystemExit])
def test_a_function_that_never_answers_is_given_up_soon_and_its_audit_resumes(
    likeliest, tmp_path, monkeypatch, error
):
    def dead(contexts):
        raise error("private: " + " ".join(contexts[0].words))

    named = SimpleNamespace(ask=dead)
    monkeypatch.setitem(sys.modules, "function_that_dies", named)
    given = {"out": tmp_path / "out", "attempts": 2}
    with pytest.raises(ModelError, match="function_that_dies:ask keeps failing, by query") as found:
        audit("function_that_dies:ask", **given)
    assert error.__name__ in str(found.value)
    assert "private" not in str(found.value)
    with Store(tmp_path / "out.partial" / "work.sqlite") as store:
        assert dict(store.part("answer/")) == {}
        assert store["account"]["calls"] == 2 * 3
    assert not (tmp_path / "out").exists()
    named.ask = likeliest
    summary = audit("function_that_dies:ask", **given).summary
    assert (summary["failures"], summary["words_unanswered"]) == (6, 0)


def test_words_that_are_too_long_fill_no_disk(likeliest, tmp_path):
    calls = []

    def long(contexts):
        calls.append(contexts)
        return likeliest(contexts) if len(calls) < 3 else [["x" * 5_000_000] * 3] * len(contexts)

    with pytest.raises(ModelError, match="a word of 5,000,000 characters"):
        audit(long, out=tmp_path / "out")
    kept = tmp_path / "out.partial" / "work.sqlite"
    with Store(kept) as store:
        assert 0 < len(dict(store.part("answer/"))) < 64
    assert kept.stat().st_size < 200_000


@pytest.mark.slow
def test_an_interrupted_audit_keeps_answers_and_counts_the_call_that_was_lost(likeliest, tmp_path):
    sent, lost = [], []

    def ask(contexts):
        if len(sent) == 2 and not lost:
            lost.extend(contexts)
            raise KeyboardInterrupt
        sent.append([context.words for context in contexts])
        return likeliest(contexts)

    with pytest.raises(KeyboardInterrupt) as caught:
        audit(ask, out=tmp_path / "out")
    assert caught.value.__notes__ == [KEPT]
    found = audit(ask, out=tmp_path / "out")
    words = [words for group in sent for words in group]
    assert len(words) == len(set(words))
    assert found.summary["queries"] == len(words) + len(lost)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# Servers.


class OfWords(Served):
    """A server of a model of words, each a token with the blank before it."""

    def piece(self, token):
        return " " + super().piece(token)


@pytest.mark.slow
def test_a_server_gives_the_audit_of_its_model_also_behind_a_failing_proxy(model, tmp_path):
    served, log = OfWords(model), Told()
    given = {"timeout": 0.5, "attempts": 8, "out": tmp_path / "failing"}
    with serving(served) as url:
        found = audit(f"openai:{url}#small", out=tmp_path / "out", monitor=log)
        calls = len(served.asked)
        with failing(url, FAULTS["rate limit"], every=9) as (proxy, faults):
            again = audit(f"openai:{proxy}#small", **given)
    assert faults
    assert again.rows == found.rows == audit(narrow(model, k=3)).rows
    assert (found.summary["calls"], found.summary["listed_pieces"]) == (calls, 0)
    assert found.summary["tokens"] > 0
    plan = next(n for n, line in enumerate(log.lines) if line.startswith("Plan: "))
    assert plan < next(n for n, one in enumerate(log.lines) if "The server's model is" in one)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


@pytest.mark.slow
def test_a_killed_audit_of_a_server_resumes_and_sends_nothing_twice(model, tmp_path):
    served = OfWords(model, delay=0.002, several=False)
    for name, corpus in (("mine", ME), ("others", PEOPLE)):
        rows = [{"text": t, "who": u} for t, u in zip(corpus, corpus.users, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with serving(served) as url:
        words = [
            *("membership", f"openai:{url}#small", "--unit", "user"),
            *("--texts", tmp_path / "mine.jsonl", "--reference", tmp_path / "others.jsonl"),
            *("--user", "who", "--top-k", "3", "--queries", "4", "--shadows", "0"),
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
    sent = Counter(json.dumps(body["prompt"]) for body in served.asked)
    repeated = [one for one, times in sent.items() if times > 1 and one != '""']
    twice = [one for one in repeated if not CONTROL.search(one)]
    assert len(served.asked) > before
    assert len(twice) <= 1  # the one that was under way; the others are the probe's
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_server_that_cannot_be_enough_is_refused_before_the_first_call(model):
    for name in ("budget", "token_budget"):
        served = OfWords(model)
        with serving(served) as url, pytest.raises(DataError, match=f"`{name}` 9 is too small"):
            audit(f"openai:{url}#small", **{name: 9})
        assert served.asked == []
    refused = pytest.raises(DataError, match="`top_k` 3 is more than the 1 tokens")
    with serving(OfWords(model, most=1)) as url, refused:
        audit(f"openai:{url}#small")
    with pytest.raises(ModelError, match="is a server") as caught:
        diff("openai:http://localhost:9/v1#small", "other")
    assert "membership --unit user" in str(caught.value)


@pytest.mark.parametrize("name", ["sk-1234", "", "a b"])
def test_a_key_is_never_an_option(name):
    with pytest.raises(ValueError, match="`key_env` must be the name of an environment variable"):
        RemoteOptions(key_env=name)


def test_the_bound_on_calls_counts_pieces_of_words_and_a_budget_may_be_just_enough():
    for k in (1, 3):
        line = server_cost([Context(("w0",)), Context(())], RemoteOptions(), k=k)
        assert f"at most {16 + 2 * k * ENDINGS:,} calls" in line
    contexts = [Context((word,)) for word in ("red", "blue")]
    server_cost(contexts, RemoteOptions(budget=16), k=1)
    with pytest.raises(DataError, match="`budget` 15 is too small: this audit needs 16 if"):
        server_cost(contexts, RemoteOptions(budget=15), k=1)
