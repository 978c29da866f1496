"""A server is asked once and within its budget, and no fault of its changes what is read."""

import json
import math
from contextlib import ExitStack
from email.utils import formatdate

import pytest
import torch

from vestige.errors import ModelError, RunError
from vestige.models.remote.openai import Question, ShownToken
from vestige.models.remote.options import PREFIX, EndpointAddress, RemoteOptions
from vestige.models.remote.probe import CALLS, EndpointAccess, drawn_sentence, probe
from vestige.models.remote.server import Endpoint
from vestige.models.remote.tokens import EndpointWords, by_ours, echoed
from vestige.models.top_k import Context

from .served import (
    FAULTS,
    KEY,
    OTHER,
    Quiet,
    Served,
    Shifted,
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


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


class Opened:
    """Endpoints of one folder, closed at the end; pauses are noted and not made."""

    def __init__(self, folder):
        self.folder, self.paused, self.stack = folder, [], ExitStack()

    def __call__(self, url, *, model="small", file="answers.sqlite", together=1, **options):
        options = RemoteOptions(**{"attempts": 8, "timeout": 1.0, "concurrency": 2, **options})
        address = EndpointAddress(url, model)
        found = Endpoint(address, self.folder / file, options, sleep=self.paused.append)
        found.together = together
        return self.stack.enter_context(found)


@pytest.fixture
def opened(tmp_path):
    with (found := Opened(tmp_path)).stack:
        yield found


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
            found = opened(url, together=together, timeout=0.25).ask(questions)
    assert faults
    assert found == plain
    opened.stack.close()
    assert not [file for file in tmp_path.rglob("*") if KEY.encode() in file.read_bytes()]
    assert KEY not in caplog.text


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


def test_another_model_behind_the_same_name_is_noticed_and_its_answers_forgotten(model, opened):
    served = Served(model)
    with serving(served) as url:
        endpoint = opened(url)
        probe(endpoint)
        kept = endpoint.ask(QUESTIONS[:2])
        endpoint.confirm()
        served.model = network(model.vocabulary, seed=1)
        endpoint.ask(QUESTIONS)
        with pytest.raises(ModelError, match=r"now has another model.*3 answers"):
            endpoint.confirm()
        served.model = model
        assert opened(url).ask(QUESTIONS)[:2] == kept
        found = shown_by(opened(url).ask(QUESTIONS))
    assert found[4] == pytest.approx(dict(naive(model, PROMPTS[4], shown=5)))


def test_a_budget_of_calls_or_of_tokens_is_never_exceeded_in_all_sessions(model, opened):
    for bound in ({"budget": 3}, {"token_budget": 40}):
        served, file = Served(model), f"{next(iter(bound))}.sqlite"
        with serving(served) as url:
            one = opened(url, file=file, concurrency=1, **bound)
            first = one.ask(QUESTIONS)
            again = opened(url, file=file, **bound).ask(QUESTIONS)
        assert one.budget_spent
        assert None in first
        assert any(reply is not None for reply in first)
        assert first == again
        spent = one.totals
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


@pytest.mark.parametrize(
    "name", ["x", "x#", "#m", "ftp://h/v1#m", "http://me:word@h/v1#m", "http://h/v1?key=1#m"]
)
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


LACKS = {
    "all": ({}, {"kind": "completion", "shown": 20, "echo": "right", "empty": True}),
    "five": ({"most": 5}, {"shown": 5, "together": True}),
    "no echo": ({"echo": False}, {"echo": "no"}),
    "one prompt": ({"several": False, "empty": False}, {"together": False, "empty": False}),
    "chat": ({"completions": False}, {"kind": "chat", "echo": "no", "together": False}),
}


@pytest.mark.parametrize("what", LACKS)
def test_a_probe_finds_what_a_server_can_do(model, opened, what):
    lacks, expected = LACKS[what]
    served = Served(model, **lacks)
    with serving(served) as url:
        endpoint = opened(url)
        found = probe(endpoint)
        assert probe(opened(url)) == found
    assert {name: getattr(found, name) for name in expected} == expected
    assert len(served.asked) <= CALLS
    assert all(sentence.endswith(".") for sentence in found.sentences())


def test_a_server_without_log_probabilities_is_refused(model, opened):
    refused = pytest.raises(ModelError, match="returns no log-probabilities")
    with serving(Served(model, log_probs=False)) as url, refused:
        probe(opened(url))


def test_a_permanent_error_ends_a_probe_whatever_failed_before(model, opened):
    served = Served(model)
    answer = served.answer

    def worse(path, body):
        if body.get("echo"):
            return 500, {}
        return (401, {}) if isinstance(body["prompt"], list) else answer(path, body)

    served.answer = worse
    with serving(served) as url, pytest.raises(ModelError, match="rejects the key"):
        probe(opened(url))


PANGRAM = "the quick brown fox jumps over the lazy dog and the cat sat on the mat"
KNOWN = ("quick", "the", "lazy", "over", "cat")


class Spelling:
    """A model that writes one text, a piece after the other, and shows it first."""

    def __init__(self, text, pieces):
        self.text, self.pieces = text, pieces

    def answer(self, path, body):
        prompt, choices = body["prompt"], []
        rest = self.text.removeprefix(prompt) if self.text.startswith(prompt) else ""
        written = ""
        for _ in range(body["max_tokens"]):
            left = rest[len(written) :]
            written += next((piece for piece in self.pieces if left.startswith(piece)), "")
        first = next((piece for piece in self.pieces if rest.startswith(piece)), ".")
        top = {first: -0.5, "s": -1.0, " the": -2.0, " xyz": -3.0, " la": -4.0}
        told = {"tokens": [first], "token_logprobs": [-0.5], "top_logprobs": [top]}
        choices = [
            {"index": 0, "text": written, "logprobs": told if body.get("logprobs") else None}
        ]
        return 200, {"model": body["model"], "choices": choices}

    asked, keys = [], set()


@pytest.mark.parametrize(
    "pieces", [[" quick", " brown"], [" qu", "ick", " b"], list(" quickbrown")]
)
def test_a_word_cut_into_pieces_is_asked_to_its_end(opened, pieces):
    with serving(Spelling("the quick brown", pieces)) as url:
        endpoint = opened(url)
        access = EndpointAccess(kind="completion", shown=5, echo="no", empty=False, together=False)
        words = EndpointWords(endpoint, access, 4, KNOWN, str.split)
        asked = [Context(("the",)), Context(()), Context(("the",))]
        found = words(asked)
    # "s" goes on with the word before; " la" leads nowhere, and stands for itself.
    assert found == [("quick", "the", "xyz", "la"), None, ("quick", "the", "xyz", "la")]
    assert words.counts["tokens"] == 4
    assert words.counts["pieces"] == 1 + (pieces[0] != " quick")


def test_tokens_that_are_cut_differently_are_added_up_or_unknown():
    shown = [ShownToken("un", -1.0), ShownToken("able", -2.0), ShownToken(" to do", -3.0)]
    found = by_ours("unable to do", shown, [6, 9, 12])
    assert [value for value, _ in found[:1]] == [-3.0]
    assert [math.isnan(value) for value, _ in found] == [False, True, True]


def test_parts_of_a_character_are_added_up_over_the_character():
    shown = [ShownToken(t, -1.0) for t in ("a", "\ufffd", "\ufffd", " b")]
    found = by_ours("aé b", shown, [1, 2, 4])
    assert [value for value, _ in found] == [-1.0, -2.0, -1.0]


def test_nothing_is_known_where_a_server_shows_no_text_for_a_mark():
    """llama-cpp-python shows the marks of a chat as nothing, and leaves the first of a text out."""
    shown = [ShownToken(t, -1.0) for t in ("Hi", "", "\n", "user", " a")]
    found = by_ours("Hi<|e|>\n<|s|>user a", shown, [2, 7, 8, 17, 19])
    assert [value for value, _ in found[:1]] == [-1.0]
    assert [math.isnan(value) for value, _ in found[1:4]] == [True, False, True]


def test_a_server_that_shows_what_comes_after_each_token_is_read_so(model, opened):
    with serving(Shifted(model)) as url:
        endpoint = opened(url)
        access = probe(endpoint)
        (tokens,) = echoed(endpoint, access, [PANGRAM])
    assert access.echo == "shifted"
    ids = model.vocabulary.encode(PANGRAM)
    rows = Served(model).log_probs(ids)
    told = [(token.log_prob, float(rows[n][ids[n]])) for n, token in enumerate(tokens)]
    assert all(math.isnan(said) or said == pytest.approx(true, abs=1e-5) for said, true in told)
    assert any(not math.isnan(said) for said, _ in told)


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


def test_a_log_probability_that_is_no_number_is_an_error_and_no_silence(model, opened):
    """Before, NaN was read as unknown, and an audit found that nothing comes back."""

    class Broken(Served):
        def choice(self, *of):
            found = super().choice(*of)
            told = found["logprobs"]
            told["token_logprobs"] = [float("nan")] * len(told["tokens"])
            return found

    with serving(Broken(model)) as url, pytest.raises(ModelError, match="not a number"):
        opened(url, concurrency=1).ask(QUESTIONS)


def test_the_control_sentence_is_another_one_for_each_endpoint():
    drawn = {drawn_sentence() for _ in range(50)}
    assert len(drawn) > 45
    assert all(7 < len(one.split()) < 16 for one in drawn)


@pytest.mark.parametrize("name", ["http://[::1/v1#m", "http://h\x1b[2J/v1#m", "http://h:x/v1#m"])
def test_an_address_that_is_none_is_refused_in_one_line(name):
    with pytest.raises(ModelError, match="openai:URL#MODEL"):
        EndpointAddress.parse(PREFIX + name)
