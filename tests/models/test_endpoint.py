"""A server is asked once and within its budget, and no fault of its changes what is read."""

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
    Quiet,
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


def naive(model, prompt, *, shown):
    """The likeliest next tokens, by the model itself."""
    ids = torch.tensor([[model.first_token, *model.vocabulary.encode(prompt)]])
    row = torch.log_softmax(model(ids)[0][0, -1].float(), -1)[: len(model.vocabulary)]
    values, tokens = row.topk(shown)
    names = [Served(model).piece(token) for token in tokens.tolist()]
    return list(zip(names, values.tolist(), strict=True))


def shown_by(replies):
    return [dict(reply.tokens[-1].likeliest) for reply in replies]


def test_what_is_shown_is_what_the_model_says(model, opened):
    with serving(Served(model)) as url:
        replies = opened(url).ask(QUESTIONS)
    for prompt, likeliest in zip(PROMPTS, shown_by(replies), strict=True):
        assert likeliest == pytest.approx(dict(naive(model, prompt, shown=5)))


def test_nothing_is_asked_twice_whoever_asks(model, opened):
    served = Served(model)
    with serving(served) as url:
        first = opened(url).ask(QUESTIONS[:3])
        again = opened(url).ask([*QUESTIONS, *QUESTIONS])
    assert sorted(body["prompt"] for body in served.asked) == sorted(PROMPTS)
    assert again[:3] == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "together"),
    [
        *((kind, 1) for kind in sorted(FAULTS)),
        *((kind, 4) for kind in ("changed order", "no choices", "truncated JSON")),
    ],
)
def test_no_fault_changes_a_reply_or_leaks_the_key(model, opened, tmp_path, kind, together, caplog):
    caplog.set_level("DEBUG")
    questions = [*QUESTIONS, *(Question(p + " the", shown=5) for p in PROMPTS)]
    with serving(Served(model)) as upstream:
        plain = opened(upstream, file="plain.sqlite").ask(questions)
        with failing(upstream, FAULTS[kind]) as (url, faults):
            replies = opened(url, together=together, timeout=0.25).ask(questions)
    assert faults
    assert replies == plain
    opened.stack.close()
    assert not [file for file in tmp_path.rglob("*") if KEY.encode() in file.read_bytes()]
    assert KEY not in caplog.text


@pytest.mark.slow
def test_a_model_of_another_name_that_stays_is_refused(model, opened):
    served = Served(model)
    with serving(served) as url:
        opened(url, model="small").ask(QUESTIONS[:1])
        answer = served.answer

        def renamed(path, body):
            status, content = answer(path, body)
            return status, {**content, "model": OTHER}

        served.answer = renamed
        endpoint = opened(url)
        assert endpoint.ask(QUESTIONS)[1:] == [None] * 4
        assert str(endpoint.last_error) == "the answer is of another model"


@pytest.mark.slow
def test_another_model_behind_the_same_name_is_noticed_and_its_answers_forgotten(model, opened):
    served = Served(model)
    with serving(served) as url:
        endpoint = opened(url)
        probe(endpoint)
        first_answers = endpoint.ask(QUESTIONS[:2])
        endpoint.confirm()
        served.model = network(model.vocabulary, seed=1)
        endpoint.ask(QUESTIONS)
        with pytest.raises(ModelError, match=r"now has another model.*3 answers"):
            endpoint.confirm()
        served.model = model
        assert opened(url).ask(QUESTIONS)[:2] == first_answers
        shown = shown_by(opened(url).ask(QUESTIONS))
    assert shown[4] == pytest.approx(dict(naive(model, PROMPTS[4], shown=5)))


@pytest.mark.slow
def test_a_budget_of_calls_or_of_tokens_is_never_exceeded_in_all_sessions(model, opened):
    for bound in ({"budget": 3}, {"token_budget": 40}):
        served, file = Served(model), f"{next(iter(bound))}.sqlite"
        with serving(served) as url:
            endpoint = opened(url, file=file, concurrency=1, **bound)
            first = endpoint.ask(QUESTIONS)
            again = opened(url, file=file, **bound).ask(QUESTIONS)
        assert endpoint.budget_spent
        assert None in first
        assert any(reply is not None for reply in first)
        assert first == again
        spent = endpoint.totals
        assert spent["calls"] == len(served.asked) <= bound.get("budget", 99)
        assert spent["tokens"] <= bound.get("token_budget", 999)


def test_a_key_that_is_not_taken_ends_at_once(model, opened):
    served = Served(model)
    served.answer = lambda path, body: served.asked.append(body) or (401, {"error": KEY})
    with serving(served) as url, pytest.raises(ModelError, match="rejects the key") as caught:
        opened(url, concurrency=1).ask(QUESTIONS)
    assert KEY not in str(caught.value)
    assert len(served.asked) == 1


def test_the_key_is_the_environments(model, opened, monkeypatch):
    served = Served(model)
    with serving(served) as url:
        opened(url).ask(QUESTIONS[:1])
        monkeypatch.delenv("OPENAI_API_KEY")
        opened(url).ask(QUESTIONS[:2])
    assert served.keys == {f"Bearer {KEY}", "Bearer none"}


@pytest.mark.slow
@pytest.mark.parametrize("told", ["7", formatdate(4e9, usegmt=True), "soon", "nan"])
def test_a_server_that_says_how_long_to_wait_is_waited_for(model, opened, told):
    served = Served(model)
    with (
        serving(served) as upstream,
        failing(upstream, (429, b"{}", {"retry_after": told}), every=4) as (url, faults),
    ):
        endpoint = opened(url, concurrency=1)
        endpoint.ask(QUESTIONS)
    expected = {"7": 7, "soon": 1, "nan": 1}.get(told, 600)
    assert len(faults) == 2
    assert opened.paused[0] == pytest.approx(expected)


def test_calls_a_minute_are_kept_apart(model, opened):
    with serving(Served(model)) as url:
        opened(url, calls_per_minute=6, concurrency=1).ask(QUESTIONS)
    assert len(opened.paused) == 4  # the first goes at once
    assert sorted(opened.paused) == pytest.approx([10, 20, 30, 40], abs=1)


def test_a_dead_server_ends_after_a_few_questions(opened):
    endpoint = opened("http://127.0.0.1:9", concurrency=1)
    with pytest.raises(ModelError, match="returns no answer: APIConnectionError"):
        endpoint.ask(QUESTIONS)


NO_ADDRESSES = ["x", "x#", "#m", "ftp://h/v1#m", "http://me:word@h/v1#m", "http://h/v1?key=1#m"]
NO_ADDRESSES += ["http://[::1/v1#m", "http://h\x1b[2J/v1#m", "http://h:x/v1#m"]


@pytest.mark.parametrize("name", NO_ADDRESSES)
def test_an_address_is_whole_and_holds_no_password(name):
    with pytest.raises(ModelError, match="openai:URL#MODEL") as caught:
        EndpointAddress.parse(PREFIX + name)
    assert "word" not in str(caught.value)


def test_answers_of_another_endpoint_are_refused(model, opened):
    opened("http://127.0.0.1:9/v1")
    with pytest.raises(ModelError, match="from another endpoint"):
        opened("http://127.0.0.1:9/v1", model="large")


def test_a_damaged_file_is_named(opened, tmp_path):
    (tmp_path / "answers.sqlite").write_bytes(b"no database" * 99)
    with pytest.raises(RunError, match=r"answers\.sqlite cannot be used"):
        opened("http://127.0.0.1:9/v1")


def test_answers_are_their_owners_alone(model, opened, tmp_path):
    with serving(Served(model)) as url:
        opened(url).ask(QUESTIONS)
    assert (tmp_path / "answers.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(
    "escape",
    [
        lambda key: "".join(f"\\u{ord(letter):04x}" for letter in key),
        lambda key: key.replace("-", "\\u002d"),
        lambda key: key,
    ],
)
def test_a_key_behind_jsons_escapes_is_noticed(model, opened, escape, tmp_path):
    class Echoing(Served):
        def answer(self, path, body):
            status, content = super().answer(path, body)
            text = json.dumps({**content, "note": "KEY"}).replace("KEY", escape(KEY))
            return status, text.encode()

    with serving(Echoing(model)) as url:
        endpoint = opened(url, concurrency=1)
        with pytest.raises(ModelError, match="contains the key") as caught:
            endpoint.ask(QUESTIONS)
    assert KEY not in str(caught.value)
    assert KEY.encode() not in (tmp_path / "answers.sqlite").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_texts_are_not_sent_to_another_host(model, opened, status):
    """A redirect that keeps the body would hand texts and key to whoever is named in it."""
    elsewhere = Served(model)
    with serving(elsewhere) as other:

        class Redirecting(Quiet):
            def do_POST(self):
                self.read_body()
                self.answer(status, b"{}", location=f"{other}/completions")

        with listening(Redirecting) as url, pytest.raises(ModelError, match="another host"):
            opened(url, concurrency=1).ask(QUESTIONS[:1])
    assert not elsewhere.asked


def test_a_redirect_within_the_host_is_followed(model, opened):
    served = Served(model)

    class Moved(Quiet):
        def do_POST(self):
            body = self.read_body()
            if self.path.startswith("/v1/"):
                return self.answer(308, b"{}", location=self.path.replace("/v1/", "/v2/"))
            return self.answer(*served.answer(self.path, json.loads(body)))

    with listening(Moved) as url:
        assert opened(url).ask(QUESTIONS[:1]) != [None]


@pytest.mark.slow
def test_a_log_probability_that_is_no_number_is_an_error_and_no_silence(model, opened):
    """Before, NaN was read as unknown, and an audit found that nothing comes back."""

    class Broken(Served):
        def choice(self, *of):
            choice = super().choice(*of)
            log_probs = choice["logprobs"]
            log_probs["token_logprobs"] = [float("nan")] * len(log_probs["tokens"])
            return choice

    with serving(Broken(model)) as url, pytest.raises(ModelError, match="not a number"):
        opened(url, concurrency=1).ask(QUESTIONS)
