"""A server is asked once and within its budget, and no fault of its changes what is read."""

import math
import sqlite3
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest
import torch

from vestige.errors import DataError, ModelError
from vestige.models.checkpoints import load_model
from vestige.models.endpoint import (
    PREFIX,
    Endpoint,
    EndpointAddress,
    EndpointLimits,
    alike,
    describe,
)
from vestige.models.endpoint_probe import CALLS, probe
from vestige.models.endpoint_store import EndpointStore
from vestige.models.endpoint_wire import (
    BadReply,
    Question,
    Reply,
    ShownToken,
    body_of,
    read_answer,
)
from vestige.models.endpoint_words import EndpointWords
from vestige.models.service import RetryPolicy
from vestige.models.top_k import Context

from .served import FAULTS, KEY, OTHER, Served, failing, serving

pytest.importorskip("openai")

PROMPTS = ("the quick", "the lazy dog and", "the cat sat on the", "fox jumps over the", "the")
QUESTIONS = [Question(prompt, shown=5) for prompt in PROMPTS]
FAST = RetryPolicy(attempts=8, pause=0.001, longest_pause=0.01, timeout=1.0)


@pytest.fixture(scope="module")
def model(folders):
    return load_model(folders["gpt2"], device="cpu")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


class Opened:
    """Endpoints of one folder, whose answers' files are closed at the end."""

    def __init__(self, folder):
        self.folder, self.stores, self.paused = folder, [], []

    def __call__(self, url, *, model="small", file="answers.sqlite", **limits):
        store = EndpointStore(self.folder / file)
        self.stores.append(store)
        return Endpoint(
            EndpointAddress(url, model),
            store,
            limits=EndpointLimits(**{"retry": FAST, "concurrency": 2, **limits}),
            sleep=self.paused.append,
        )


@pytest.fixture
def opened(tmp_path):
    found = Opened(tmp_path)
    yield found
    for store in found.stores:
        store.close()


def naive(model, prompt, *, shown):
    """The likeliest next tokens, by the model itself."""
    ids = torch.tensor([[model.first_token, *model.vocabulary.encode(prompt)]])
    row = torch.log_softmax(model(ids)[0][0, -1].float(), -1)[: len(model.vocabulary)]
    values, tokens = row.topk(shown)
    return [(model.vocabulary.piece(t), v) for t, v in zip(tokens.tolist(), values.tolist())]


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


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_no_fault_changes_a_reply_or_leaks_the_key(model, opened, tmp_path, kind, together, caplog):
    caplog.set_level("DEBUG")
    questions = [*QUESTIONS, *(Question(p + " the", shown=5) for p in PROMPTS)]
    retry = RetryPolicy(attempts=8, pause=0, longest_pause=0.01, timeout=0.25)
    with serving(Served(model)) as upstream:
        plain = opened(upstream, file="plain.sqlite").ask(questions)
        with failing(upstream, FAULTS[kind]) as (url, faults):
            found = opened(url, together=together, retry=retry).ask(questions)
    assert faults
    assert found == plain
    for store in opened.stores:
        store.close()
    assert not [file for file in tmp_path.rglob("*") if KEY.encode() in file.read_bytes()]
    assert KEY not in caplog.text
