"""Endpoints query each prompt once, stay within the budget, and survive faults of the server."""

import json
from email.utils import formatdate

import pytest
import torch

from vestige.errors import ModelError, RunError
from vestige.models.remote.openai import Question
from vestige.models.remote.options import PREFIX, EndpointAddress
from vestige.models.remote.probe import probe

from .served import (
    FAULTS,
    KEY,
    OTHER,
    JsonHandler,
    Served,
    failing,
    listening,
    network,
    serving,
)

pytest.importorskip("openai")

PROMPTS = ("the quick", "the lazy dog and", "the cat sat on the", "fox jumps over the", "the")
QUESTIONS = [Question(prompt, shown=5) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def model(subwords):
    return network(subwords)


@pytest.fixture
def served(model):
    return Served(model)


def naive(model, prompt):
    """The five likeliest next tokens, by the model itself."""
    ids = torch.tensor([[model.first_token, *model.vocabulary.encode(prompt)]])
    row = torch.log_softmax(model(ids)[0][0, -1].float(), -1)[: len(model.vocabulary)]
    values, tokens = row.topk(5)
    names = [Served(model).piece(token) for token in tokens.tolist()]
    return pytest.approx(dict(zip(names, values.tolist(), strict=True)))


def likeliest(reply):
    return dict(reply.tokens[-1].likeliest)


def test_likeliest_tokens_equal_those_of_the_model(model, served, open_endpoint):
    with serving(served) as url:
        replies = open_endpoint(url).ask(QUESTIONS)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert likeliest(reply) == naive(model, prompt)


def test_answers_are_cached_across_sessions_in_a_private_file(served, open_endpoint, tmp_path):
    with serving(served) as url:
        first = open_endpoint(url).ask(QUESTIONS[:3])
        again = open_endpoint(url).ask([*QUESTIONS, *QUESTIONS])
    assert sorted(body["prompt"] for body in served.asked) == sorted(PROMPTS)
    assert again[:3] == first
    assert (tmp_path / "answers.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "together"),
    [
        *((kind, 1) for kind in sorted(FAULTS)),
        *((kind, 4) for kind in ("changed order", "no choices", "truncated JSON")),
    ],
)
def test_faults_neither_change_replies_nor_reveal_the_key(
    served, open_endpoint, tmp_path, kind, together, caplog
):
    caplog.set_level("DEBUG")
    questions = [*QUESTIONS, *(Question(p + " the", shown=5) for p in PROMPTS)]
    with serving(served) as upstream:
        expected = open_endpoint(upstream, file="plain.sqlite").ask(questions)
        with failing(upstream, FAULTS[kind]) as (url, faults):
            replies = open_endpoint(url, together=together, timeout=0.25).ask(questions)
    assert faults
    assert replies == expected
    open_endpoint.stack.close()
    assert not [file for file in tmp_path.rglob("*") if KEY.encode() in file.read_bytes()]
    assert KEY not in caplog.text


@pytest.mark.slow
def test_answers_from_another_model_name_are_refused(served, open_endpoint):
    with serving(served) as url:
        open_endpoint(url, model="small").ask(QUESTIONS[:1])
        answer = served.answer

        def renamed(path, body):
            status, content = answer(path, body)
            return status, {**content, "model": OTHER}

        served.answer = renamed
        endpoint = open_endpoint(url)
        assert endpoint.ask(QUESTIONS)[1:] == [None] * 4
        assert str(endpoint.last_error) == "the answer is of another model"


@pytest.mark.slow
def test_a_replaced_model_is_noticed_and_its_answers_are_deleted(model, served, open_endpoint):
    with serving(served) as url:
        endpoint = open_endpoint(url)
        probe(endpoint)
        first_answers = endpoint.ask(QUESTIONS[:2])
        endpoint.confirm()
        served.model = network(model.vocabulary, seed=1)
        endpoint.ask(QUESTIONS)
        with pytest.raises(ModelError, match=r"now has another model.*3 answers"):
            endpoint.confirm()
        served.model = model
        assert open_endpoint(url).ask(QUESTIONS)[:2] == first_answers
        replies = open_endpoint(url).ask(QUESTIONS)
    assert likeliest(replies[4]) == naive(model, PROMPTS[4])


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"budget": 3}, {"token_budget": 40}])
def test_budgets_hold_across_sessions(served, open_endpoint, budget):
    with serving(served) as url:
        endpoint = open_endpoint(url, concurrency=1, **budget)
        first = endpoint.ask(QUESTIONS)
        again = open_endpoint(url, **budget).ask(QUESTIONS)
    assert endpoint.budget_spent
    assert None in first
    assert any(reply is not None for reply in first)
    assert first == again
    spent = endpoint.totals
    assert spent["calls"] == len(served.asked) <= budget.get("budget", 99)
    assert spent["tokens"] <= budget.get("token_budget", 999)


def test_a_rejected_key_fails_after_one_call_and_is_not_quoted(served, open_endpoint):
    served.answer = lambda path, body: served.asked.append(body) or (401, {"error": KEY})
    with serving(served) as url, pytest.raises(ModelError, match="rejects the key") as caught:
        open_endpoint(url, concurrency=1).ask(QUESTIONS)
    assert KEY not in str(caught.value)
    assert len(served.asked) == 1


def test_the_key_comes_from_the_environment(served, open_endpoint, monkeypatch):
    with serving(served) as url:
        open_endpoint(url).ask(QUESTIONS[:1])
        monkeypatch.delenv("OPENAI_API_KEY")
        open_endpoint(url).ask(QUESTIONS[:2])
    assert served.keys == {f"Bearer {KEY}", "Bearer none"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "pause"), [("7", 7), (formatdate(4e9, usegmt=True), 600), ("soon", 1), ("nan", 1)]
)
def test_retries_wait_as_long_as_the_server_asks(served, open_endpoint, header, pause):
    with (
        serving(served) as upstream,
        failing(upstream, (429, b"{}", {"retry_after": header}), every=4) as (url, faults),
    ):
        open_endpoint(url, concurrency=1).ask(QUESTIONS)
    assert len(faults) == 2
    assert open_endpoint.pauses[0] == pytest.approx(pause)


def test_calls_per_minute_are_limited(served, open_endpoint):
    with serving(served) as url:
        open_endpoint(url, calls_per_minute=6, concurrency=1).ask(QUESTIONS)
    assert len(open_endpoint.pauses) == 4  # the first call needs no pause
    assert sorted(open_endpoint.pauses) == pytest.approx([10, 20, 30, 40], abs=1)


def test_an_unreachable_server_is_an_error(open_endpoint):
    endpoint = open_endpoint("http://127.0.0.1:9", concurrency=1)
    with pytest.raises(ModelError, match="returns no answer: APIConnectionError"):
        endpoint.ask(QUESTIONS)


INVALID = ["x", "x#", "#m", "ftp://h/v1#m", "http://me:word@h/v1#m", "http://h/v1?key=1#m"]
INVALID += ["http://[::1/v1#m", "http://h\x1b[2J/v1#m", "http://h:x/v1#m"]


@pytest.mark.parametrize("address", INVALID)
def test_invalid_addresses_are_refused_without_quoting_a_password(address):
    with pytest.raises(ModelError, match="openai:URL#MODEL") as caught:
        EndpointAddress.parse(PREFIX + address)
    assert "word" not in str(caught.value)


def test_cached_answers_of_another_endpoint_are_refused(open_endpoint):
    open_endpoint("http://127.0.0.1:9/v1")
    with pytest.raises(ModelError, match="from another endpoint"):
        open_endpoint("http://127.0.0.1:9/v1", model="large")


def test_a_damaged_cache_is_named(open_endpoint, tmp_path):
    (tmp_path / "answers.sqlite").write_bytes(b"no database" * 99)
    with pytest.raises(RunError, match=r"answers\.sqlite cannot be used"):
        open_endpoint("http://127.0.0.1:9/v1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "escape",
    [
        lambda key: "".join(f"\\u{ord(letter):04x}" for letter in key),
        lambda key: key.replace("-", "\\u002d"),
        lambda key: key,
    ],
)
def test_an_answer_that_contains_the_key_is_refused(model, open_endpoint, escape, tmp_path):
    class Echoing(Served):
        def answer(self, path, body):
            status, content = super().answer(path, body)
            text = json.dumps({**content, "note": "KEY"}).replace("KEY", escape(KEY))
            return status, text.encode()

    with serving(Echoing(model)) as url:
        endpoint = open_endpoint(url, concurrency=1)
        with pytest.raises(ModelError, match="contains the key") as caught:
            endpoint.ask(QUESTIONS)
    assert KEY not in str(caught.value)
    assert KEY.encode() not in (tmp_path / "answers.sqlite").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_to_another_host_are_not_followed(served, open_endpoint, status):
    """A redirect that keeps the body would send texts and key to the other host."""
    with serving(served) as other:

        class Redirecting(JsonHandler):
            def do_POST(self):
                self.read_body()
                self.answer(status, b"{}", location=f"{other}/completions")

        with listening(Redirecting) as url, pytest.raises(ModelError, match="another host"):
            open_endpoint(url, concurrency=1).ask(QUESTIONS[:1])
    assert not served.asked


def test_redirects_within_the_host_are_followed(served, open_endpoint):
    class Moved(JsonHandler):
        def do_POST(self):
            body = self.read_body()
            if self.path.startswith("/v1/"):
                return self.answer(308, b"{}", location=self.path.replace("/v1/", "/v2/"))
            return self.answer(*served.answer(self.path, json.loads(body)))

    with listening(Moved) as url:
        assert open_endpoint(url).ask(QUESTIONS[:1]) != [None]


@pytest.mark.slow
def test_a_log_probability_that_is_not_a_number_is_an_error(model, open_endpoint):
    class Broken(Served):
        def choice(self, *arguments):
            choice = super().choice(*arguments)
            log_probs = choice["logprobs"]
            log_probs["token_logprobs"] = [float("nan")] * len(log_probs["tokens"])
            return choice

    with serving(Broken(model)) as url, pytest.raises(ModelError, match="not a number"):
        open_endpoint(url, concurrency=1).ask(QUESTIONS)
