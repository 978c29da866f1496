"""What a server shows of texts equals a pass of its model over them."""

import math

import numpy as np
import pytest

from tests.models.served import Served, Shifted, endpoint_statistics, network, serving
from vestige.errors import ModelError
from vestige.models.remote.openai import ShownToken
from vestige.models.remote.probe import MOST_CALLS, EndpointAccess, probe, random_sentence
from vestige.models.remote.tokens import EndpointWords, align_tokens, echo_tokens
from vestige.models.token_statistics import token_statistics
from vestige.models.top_k import Context

pytest.importorskip("openai")

PANGRAM = "the quick brown fox jumps over the lazy dog and the cat sat on the mat"


@pytest.fixture(scope="module")
def model(subwords):
    return network(subwords)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        ({}, {"kind": "completion", "shown": 20, "echo": "right", "empty": True}),
        ({"most": 5}, {"shown": 5, "together": True}),
        ({"echo": False}, {"echo": "no"}),
        ({"several": False, "empty": False}, {"together": False, "empty": False}),
        ({"completions": False}, {"kind": "chat", "echo": "no", "together": False}),
    ],
)
def test_a_probe_detects_the_features_of_a_server(model, open_endpoint, lacks, expected):
    served = Served(model, **lacks)
    with serving(served) as url:
        access = probe(open_endpoint(url, timeout=30))
        assert probe(open_endpoint(url, timeout=30)) == access
    assert {name: getattr(access, name) for name in expected} == expected
    assert len(served.asked) <= MOST_CALLS
    assert all(sentence.endswith(".") for sentence in access.sentences())


@pytest.mark.slow
def test_a_server_without_log_probabilities_is_refused(model, open_endpoint):
    error = pytest.raises(ModelError, match="returns no log-probabilities")
    with serving(Served(model, log_probs=False)) as url, error:
        probe(open_endpoint(url))


@pytest.mark.slow
def test_a_permanent_error_ends_a_probe_after_other_failures(model, open_endpoint):
    served = Served(model)
    answer = served.answer

    def failing(path, body):
        if body.get("echo"):
            return 500, {}
        return (401, {}) if isinstance(body["prompt"], list) else answer(path, body)

    served.answer = failing
    with serving(served) as url, pytest.raises(ModelError, match="rejects the key"):
        probe(open_endpoint(url))


class Spelling:
    """A model that writes one text piece by piece and ranks the next piece first."""

    def __init__(self, text, pieces):
        self.text, self.pieces, self.keys = text, pieces, set()

    def answer(self, path, body):
        prompt = body["prompt"]
        rest = self.text.removeprefix(prompt) if self.text.startswith(prompt) else ""
        written = ""
        for _ in range(body["max_tokens"]):
            unwritten = rest[len(written) :]
            written += next((piece for piece in self.pieces if unwritten.startswith(piece)), "")
        first = next((piece for piece in self.pieces if rest.startswith(piece)), ".")
        top = {first: -0.5, "s": -1.0, " the": -2.0, " xyz": -3.0, " la": -4.0}
        log_probs = {"tokens": [first], "token_logprobs": [-0.5], "top_logprobs": [top]}
        log_probs = log_probs if body.get("logprobs") else None
        choices = [{"index": 0, "text": written, "logprobs": log_probs}]
        return 200, {"model": body["model"], "choices": choices}


@pytest.mark.slow
@pytest.mark.parametrize(
    "pieces", [[" quick", " brown"], [" qu", "ick", " b"], list(" quickbrown")]
)
def test_a_word_in_several_pieces_is_completed(open_endpoint, pieces):
    known = ("quick", "the", "lazy", "over", "cat")
    with serving(Spelling("the quick brown", pieces)) as url:
        access = EndpointAccess(kind="completion", shown=5, echo="no", empty=False, together=False)
        words = EndpointWords(open_endpoint(url), access, 4, known, str.split)
        lists = words([Context(("the",)), Context(()), Context(("the",))])
    # "s" continues the word before; " la" begins no known word and stays as it is.
    assert lists == [("quick", "the", "xyz", "la"), None, ("quick", "the", "xyz", "la")]
    assert words.counts["tokens"] == 4
    assert words.counts["pieces"] == 1 + (pieces[0] != " quick")


@pytest.mark.parametrize(
    ("text", "pieces", "ends", "expected"),
    [
        ("unable to do", ["un", "able", " to do"], [6, 9, 12], [-2, None, None]),
        ("aé b", ["a", "\ufffd", "\ufffd", " b"], [1, 2, 4], [-1, -2, -1]),
        # llama-cpp-python shows the marks of a chat as "", and leaves the first of a text out.
        (
            "Hi<|e|>\n<|s|>user a",
            ["Hi", "", "\n", "user", " a"],
            [2, 7, 8, 17, 19],
            [-1, None, -1, None],
        ),
    ],
    ids=["other tokens", "parts of a character", "marks without text"],
)
def test_shown_tokens_are_summed_over_ours_or_unknown(text, pieces, ends, expected):
    aligned = align_tokens(text, [ShownToken(piece, -1.0) for piece in pieces], ends)
    values = [None if math.isnan(value) else value for value, _ in aligned]
    assert values[: len(expected)] == expected


@pytest.mark.slow
def test_a_server_that_shows_scores_of_the_next_token_is_read_correctly(model, open_endpoint):
    with serving(Shifted(model)) as url:
        endpoint = open_endpoint(url)
        access = probe(endpoint)
        (tokens,) = echo_tokens(endpoint, access, [PANGRAM])
    assert access.echo == "shifted"
    ids = model.vocabulary.encode(PANGRAM)
    rows = Served(model).log_probs(ids)
    pairs = [(token.log_prob, float(rows[n][ids[n]])) for n, token in enumerate(tokens)]
    known = [pair for pair in pairs if not math.isnan(pair[0])]
    assert known
    assert all(log_prob == pytest.approx(true, abs=1e-5) for log_prob, true in known)


def test_control_sentences_are_random():
    sentences = {random_sentence() for _ in range(50)}
    assert len(sentences) > 45
    assert all(7 < len(sentence.split()) < 16 for sentence in sentences)


def test_statistics_from_a_server_equal_those_of_a_pass_over_the_texts(model, open_endpoint):
    vocabulary, texts = model.vocabulary, (PANGRAM[:43], PANGRAM[48:])
    with serving(Served(model)) as url:
        endpoint = open_endpoint(url, timeout=30)
        access = probe(endpoint)
        served = endpoint_statistics(endpoint, access, texts, vocabulary)
        # Parts of characters and empty texts are not errors.
        odd = endpoint_statistics(endpoint, access, ["über the cat", "", "the"], vocabulary)
    assert len(odd.offsets) == 4
    assert math.isfinite(odd.log_probs[odd.offsets[1] - 1])
    true = token_statistics(model, vocabulary.encode_batch(texts), likeliest=20)
    assert np.array_equal(served.offsets, true.offsets)
    assert np.array_equal(served.tokens, true.tokens)
    has_log_prob, has_id = np.isfinite(served.log_probs), served.likeliest >= 0
    assert (has_log_prob == ~np.isin(np.arange(len(true.tokens)), true.offsets)).all()
    assert served.log_probs[has_log_prob] == pytest.approx(true.log_probs[has_log_prob], abs=1e-4)
    is_ranked = served.ranks >= 1
    assert np.array_equal(served.ranks[is_ranked], true.ranks[is_ranked])
    assert (is_ranked == (has_log_prob & (true.ranks <= 20))).all()
    assert has_id.any()
    assert np.array_equal(served.likeliest[has_id], true.likeliest[has_id])
    likeliest = true.likeliest_log_probs[has_id]
    assert served.likeliest_log_probs[has_id] == pytest.approx(likeliest, abs=1e-4)
    assert np.isnan(served.means).all()
    assert np.isnan(served.deviations).all()
