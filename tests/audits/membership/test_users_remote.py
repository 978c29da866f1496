"""An audit of users of an unreliable function and of a server: complete, and paid once."""

import json
import sys
import time
from types import SimpleNamespace

import pytest

from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import CONTROL, texts_of, untrained_lstm, users
from tests.models.narrowed import narrow
from tests.models.served import FAULTS, KEY, Served, failing, serving
from tests.monitors import RecordingMonitor
from vestige.audits.membership import service as service_module
from vestige.audits.membership.service import CALLS_PER_WORD, server_cost
from vestige.audits.update.diff import diff
from vestige.claims import UNDECIDED
from vestige.errors import DataError, ModelError
from vestige.models.remote import retry as retries
from vestige.models.remote.options import RemoteOptions
from vestige.models.top_k import Context
from vestige.store import Store

pytest.importorskip("openai")

WORDS = tuple(f"w{n}" for n in range(12))
"""Few words, so that texts share prefixes and need few queries, but few are near-duplicates."""
AUDITED = texts_of(["me"], WORDS, seed=1, texts=6, words=6)
REFERENCE = texts_of([f"person {n:02}" for n in range(40)], WORDS, seed=2, texts=6, words=6)


@pytest.fixture(scope="module")
def model():
    return untrained_lstm(WORDS)


@pytest.fixture
def likeliest(model):
    return narrow(model, k=3).likeliest


@pytest.fixture(autouse=True)
def key_and_no_pauses(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(
        retries.RetryPolicy, "pauses", lambda retry: [0.0] * (retry.attempts - 1) + [None]
    )


def audit(target, **options):
    defaults = {"reference": REFERENCE, "shadows": 0, "top_k": 3, "queries": 5}
    return users(target, AUDITED, **{**defaults, **options})


# Functions.


def test_a_function_that_always_lists_the_same_words_is_undecided():
    result = audit(lambda contexts: [list(WORDS[:3])] * len(contexts))
    assert result.verdict == UNDECIDED
    assert "alive" in failed(result)


def test_a_slow_call_is_logged(likeliest, monkeypatch):
    calls = []

    def slow(contexts):
        calls.append(contexts)
        if len(calls) == 2:
            time.sleep(0.1)
        return likeliest(contexts)

    monkeypatch.setattr(service_module, "SLOW_CALL", 0.01)
    audit(slow, monitor=(log := RecordingMonitor()))
    assert any("The service has not answered for 0 s" in line for line in log.lines)


@pytest.mark.slow
def test_missing_answers_are_counted(likeliest):
    def incomplete(contexts):
        answers = zip(contexts, likeliest(contexts), strict=True)
        return [None if len(context.words) == 4 else answer for context, answer in answers]

    result = audit(incomplete)
    assert result.summary["refused"] > 0
    answered = result.summary["words_asked"] - result.summary["words_unanswered"]
    assert audited(result, "words").sum() < answered < result.summary["words_asked"]


@pytest.mark.slow
def test_a_function_that_never_answers_ends_the_audit_which_resumes(
    likeliest, tmp_path, monkeypatch
):
    def dead(contexts):
        raise ConnectionError("private: " + " ".join(contexts[0].words))

    module = SimpleNamespace(ask=dead)
    monkeypatch.setitem(sys.modules, "function_that_dies", module)
    options = {"out": tmp_path / "out", "attempts": 2}
    with pytest.raises(ModelError, match="function_that_dies:ask keeps failing") as caught:
        audit("function_that_dies:ask", **options)
    assert "ConnectionError" in str(caught.value)
    assert "private" not in str(caught.value)
    with Store(tmp_path / "out.partial" / "work.sqlite") as store:
        assert dict(store.part("answer/")) == {}
        assert store["account"]["calls"] == 2 * 3
    assert not (tmp_path / "out").exists()
    module.ask = likeliest
    summary = audit("function_that_dies:ask", **options).summary
    assert (summary["failures"], summary["words_unanswered"]) == (6, 0)


# Servers.


class ServedWords(Served):
    """A server of a word model; each word is a token that begins with a blank."""

    def piece(self, token):
        return " " + super().piece(token)


@pytest.mark.slow
def test_a_server_gives_the_audit_of_its_model_even_through_a_failing_proxy(model, tmp_path):
    served, log = ServedWords(model), RecordingMonitor()
    options = {"timeout": 0.5, "attempts": 8, "out": tmp_path / "failing"}
    with serving(served) as url:
        result = audit(f"openai:{url}#small", out=tmp_path / "out", monitor=log)
        calls = len(served.asked)
        audit(f"openai:{url}#small", statistics=tmp_path / "out.statistics")
        later = [json.dumps(body["prompt"]) for body in served.asked[calls:]]
        assert all(prompt == '""' or CONTROL.search(prompt) for prompt in later), "sent twice"
        with failing(url, FAULTS["rate limit"], every=9) as (proxy, faults):
            through_proxy = audit(f"openai:{proxy}#small", **options)
    assert faults
    assert through_proxy.rows == result.rows == audit(narrow(model, k=3)).rows
    assert (result.summary["calls"], result.summary["listed_pieces"]) == (calls, 0)
    assert result.summary["tokens"] > 0
    plan = next(n for n, line in enumerate(log.lines) if line.startswith("Plan: "))
    assert plan < next(n for n, line in enumerate(log.lines) if "The server's model is" in line)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


@pytest.mark.slow
def test_a_server_that_cannot_be_audited_is_refused_before_the_first_call(model):
    for name in ("budget", "token_budget"):
        served = ServedWords(model)
        with serving(served) as url, pytest.raises(DataError, match=f"`{name}` 9 is too small"):
            audit(f"openai:{url}#small", **{name: 9})
        assert served.asked == []
    refused = pytest.raises(DataError, match="`top_k` 3 is more than the 1 tokens")
    with serving(ServedWords(model, most=1)) as url, refused:
        audit(f"openai:{url}#small")
    with pytest.raises(ModelError, match="is a server") as caught:
        diff("openai:http://localhost:9/v1#small", "other")
    assert "membership --unit user" in str(caught.value)


@pytest.mark.parametrize("name", ["sk-1234", "", "a b"])
def test_a_key_is_never_an_option(name):
    with pytest.raises(ValueError, match="`key_env` must be the name of an environment variable"):
        RemoteOptions(key_env=name)


def test_the_bound_on_calls_includes_pieces_of_words_and_may_equal_the_budget():
    for k in (1, 3):
        line = server_cost([Context(("w0",)), Context(())], RemoteOptions(), k=k)
        assert f"at most {16 + 2 * k * CALLS_PER_WORD:,} calls" in line
    contexts = [Context((word,)) for word in ("red", "blue")]
    server_cost(contexts, RemoteOptions(budget=16), k=1)
    with pytest.raises(DataError, match="`budget` 15 is too small: this audit needs 16 if"):
        server_cost(contexts, RemoteOptions(budget=15), k=1)
