"""An audit of users queries a server as it reads a model: the same result, nothing paid twice."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.audits.membership.test_users_asked import ME, PEOPLE, audit, model
from tests.audits.told import Told
from tests.cli.shell import invoke
from tests.models.narrowed import narrow
from tests.models.served import FAULTS, KEY, Served, failing, serving
from vestige.audits.membership.service import ENDINGS, server_cost
from vestige.audits.update.diff import diff
from vestige.errors import DataError, ModelError
from vestige.models.remote.options import RemoteOptions
from vestige.models.top_k import Context

pytest.importorskip("openai")
__all__ = ["model"]

CONTROL = re.compile(r"The \w+ \w+ on \w+ and \w+ by \w+ that the \w+ \w+ be")
"""A sentence that a probe draws."""


class OfWords(Served):
    """A server of a model of words, each a token with the blank before it."""

    def piece(self, token):
        return " " + super().piece(token)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.slow
def test_an_endpoint_gives_the_audit_that_its_model_gives_behind_a_failing_proxy_too(
    model, tmp_path
):
    served, told = OfWords(model), Told()
    given = {"timeout": 0.5, "attempts": 8, "out": tmp_path / "failing"}
    with serving(served) as url:
        found = audit(f"openai:{url}#small", out=tmp_path / "out", monitor=told)
        calls = len(served.asked)
        with failing(url, FAULTS["rate limit"], every=9) as (proxy, faults):
            again = audit(f"openai:{proxy}#small", **given)
    assert faults
    assert again.rows == found.rows == audit(narrow(model, k=3)).rows
    assert (found.summary["calls"], found.summary["listed_pieces"]) == (calls, 0)
    assert found.summary["tokens"] > 0
    plan = next(n for n, line in enumerate(told.lines) if line.startswith("Plan: "))
    assert plan < next(n for n, one in enumerate(told.lines) if "The server's model is" in one)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


@pytest.mark.slow
def test_a_killed_audit_goes_on_and_asks_nothing_twice(model, tmp_path):
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
    asked = Counter(json.dumps(body["prompt"]) for body in served.asked)
    repeated = [one for one, times in asked.items() if times > 1 and one != '""']
    twice = [one for one in repeated if not CONTROL.search(one)]
    assert len(served.asked) > before
    assert len(twice) <= 1  # the one that was under way; the others are the probe's
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_what_cannot_be_asked_is_refused_before_the_first_call(model):
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


def test_an_upper_bound_of_calls_counts_the_pieces_of_words_and_a_budget_may_be_just_enough():
    for k in (1, 3):
        line = server_cost([Context(("w0",)), Context(())], RemoteOptions(), k=k)
        assert f"at most {16 + 2 * k * ENDINGS:,} calls" in line
    contexts = [Context((word,)) for word in ("red", "blue")]
    server_cost(contexts, RemoteOptions(budget=16), k=1)
    with pytest.raises(DataError, match="`budget` 15 is too small: this audit needs 16 if"):
        server_cost(contexts, RemoteOptions(budget=15), k=1)
