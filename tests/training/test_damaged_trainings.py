"""What a training left, damaged in every field: refused by name, or gone on with; no traceback."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.damage import damaged, refusal
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode, load_encoded
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, TrainingError
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.checkpoint import load
from vestige.training.config import TrainingConfig
from vestige.training.directory import CHECKPOINT, LOG, log_lines, open_directory
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.recipe import Recipe

CORPUS = Corpus.from_texts(["hot tea and cold tea", "the tea is hot"] * 6, users=["ann", "bo"] * 6)
WORDS = WordVocabulary.build(CORPUS)
CONFIG = TrainingConfig(seed=0, epochs=1, batch_size=2, sequence_length=4)


def fresh():
    return new_model(WORDS, LSTMConfig(layers=1, embedding_size=4, hidden_size=4), seed=0)


@pytest.fixture
def left(tmp_path):
    data = encode(CORPUS, WORDS, tmp_path / "out" / "data" / "training")
    train(fresh(), data, config=CONFIG, directory=tmp_path / "out")
    return tmp_path / "out"


def position_of(file):
    with safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return json.loads(opened.metadata()["position"]), tensors


def test_every_field_of_a_checkpoint_is_checked(left):
    facts, tensors = position_of(left / CHECKPOINT)
    model = fresh()
    optimizer = torch.optim.Adam(model.parameters())

    def use():
        return load(left, model, optimizer, None)

    messages = []
    for what, content in damaged(facts):
        save_file(tensors, left / CHECKPOINT, metadata={"position": json.dumps(content)})
        messages.append(refusal(what, use))
    assert len(messages) > 200
    assert sum(one is not None for one in messages) > 0.7 * len(messages)
    changes = [
        lambda held: held.pop("loss"),
        lambda held: held.update(loss=torch.zeros(3)),
        lambda held: held.update({"chance.cpu": torch.zeros(4)}),
        lambda held: held.update({"optimizer.x.y": torch.zeros(1)}),
        lambda held: held.update({"optimizer.99.exp_avg": torch.zeros(1)}),
        lambda held: held.update({"model.embedding.weight": torch.zeros(1)}),
        lambda held: held.pop("model.embedding.weight"),
    ]
    for number, change in enumerate(changes):
        held = dict(tensors)
        change(held)
        save_file(held, left / CHECKPOINT, metadata={"position": json.dumps(facts)})
        refusal(f"tensors {number}", use)
    save_file(tensors, left / CHECKPOINT)
    with pytest.raises(TrainingError, match=CHECKPOINT):
        use()


def test_every_field_of_an_identity_is_checked(left):
    file = left / "training.json"
    sound = json.loads(file.read_text())
    messages = []
    for what, content in damaged(sound):
        file.write_text(json.dumps(content))
        messages.append(refusal(what, lambda: open_directory(left, sound, resume=True)))
        refusal(what, lambda: Recipe.of(left))
    accepted = sum(one is None for one in messages)  # such as true in the place of 1
    assert accepted < 0.05 * len(messages)


@pytest.mark.parametrize(
    "line", [b'{"step": null}', b'{"step": 1e999}', b"[" * 10**5 + b"}", b"\xff}", b"{}", b'{"a"}']
)
def test_a_log_that_is_none_is_named_by_its_line(line, left):
    (left / LOG).write_bytes(b'{"step": 1}\n' + line + b"\n")
    with pytest.raises(TrainingError, match=r"log\.jsonl, line 2"):
        list(log_lines(left / LOG))


def test_an_encoding_is_whole_or_refused(left):
    folder = left / "data" / "training"
    file = folder / "encoded.json"
    sound = file.read_text()
    for what, content in damaged(json.loads(sound)):
        file.write_text(json.dumps(content))
        refusal(what, lambda: load_encoded(folder))
    file.write_text(sound)
    tokens = (folder / "tokens.npy").read_bytes()
    hostile = {
        "cut": tokens[:-3],
        "empty": b"",
        "half a header": tokens[:20],
        "a header without an end": tokens[:8] + b"\xff\xff" + tokens[10:],
        "a header that is no dictionary": tokens.replace(b"{'descr'", b"[[['esc'"),
        "a vast shape": tokens.replace(b"(%d,)" % 60, b"(9e9)"),
        "objects": tokens.replace(b"<i4", b"|O8"),
        "negative": tokens.replace(b"'shape': (", b"'shape': (-"),
    }
    for what, content in hostile.items():
        (folder / "tokens.npy").write_bytes(content)
        if content != tokens:
            assert refusal(what, lambda: load_encoded(folder)) is not None, what
    (folder / "tokens.npy").write_bytes(tokens)
    for offsets in ([0, 3, 2], [-4, 60], [0, 10**12], [0, 0, 60], []):
        np.save(folder / "offsets.npy", np.array(offsets, np.int64))
        with pytest.raises(DataError, match=r"offsets\.npy"):
            load_encoded(folder)
