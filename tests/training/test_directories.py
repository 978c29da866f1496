"""A directory of a training is claimed, found again, and never trusted."""

import json
from contextlib import nullcontext

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.damage import damaged, refusal
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import RunError, TrainingError
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.checkpoint import load
from vestige.training.config import TrainingConfig
from vestige.training.directory import (
    CHECKPOINT,
    DATA,
    IDENTITY,
    LEDGER,
    LOG,
    RECORDS,
    check_repeats,
    lock_training,
    log_lines,
    open_directory,
)
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.recipe import Recipe

GOES_ON = "The same command with --resume continues from the last checkpoint"


def failed(out, error, *, write=()):
    """The error of a training that writes some files and then fails."""

    def train():
        with lock_training(out, resume=False):
            for name in write:
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).write_text("{}")
            raise error

    with pytest.raises(type(error)) as caught:
        train()
    return getattr(caught.value, "__notes__", [])


def test_a_failed_start_leaves_no_directory_and_empties_one_that_was_empty(tmp_path):
    out = tmp_path / "new" / "deep"
    assert failed(out, OSError("full"), write=[IDENTITY, f"{DATA}/training"]) == []
    assert list(tmp_path.iterdir()) == []
    failed(tmp_path, ValueError("no"), write=[LEDGER])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "notes"),
    [(OSError("full"), [GOES_ON]), (KeyboardInterrupt(), [GOES_ON]), (ValueError("no"), [])],
)
def test_a_checkpoint_is_kept_and_the_way_on_is_told(tmp_path, error, notes):
    out = tmp_path / "out"
    assert failed(out, error, write=[CHECKPOINT, IDENTITY]) == notes
    assert {one.name for one in out.iterdir()} == {CHECKPOINT, IDENTITY}


def test_only_one_holds_the_directory_until_the_end(tmp_path):
    out = tmp_path / "out"
    with lock_training(out, resume=False):
        assert out.is_dir()
        (out / IDENTITY).write_text("{}")
    assert {one.name for one in out.iterdir()} == {IDENTITY}


CLAIMS = {  # what lies there: the refusals of a fresh start and of --resume, None where it may be
    "nothing": (None, None, None),
    "a file of its own": ("", "out is a file", "out is a file"),
    "a lock of a killed process": (".lock", None, None),
    "text encoded": (f"{DATA}/one", "never overwritten", None),
    "a ledger": (f"{LEDGER}/one", "never overwritten", None),
    "records": (f"{RECORDS}/one", "never overwritten", None),
    "a training": (IDENTITY, "never overwritten", None),
    "something else": ("mine.txt", "never overwritten", "no training to resume"),
}


@pytest.mark.parametrize(("name", "fresh", "resumed"), CLAIMS.values(), ids=CLAIMS)
def test_a_directory_is_claimed_for_a_training_that_may_go_there(tmp_path, name, fresh, resumed):
    out = tmp_path / "out"
    if name is not None:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("{}")
    for resume, refusal_of in ((True, resumed), (False, fresh)):
        refused = nullcontext() if refusal_of is None else pytest.raises(RunError, match=refusal_of)
        with refused, lock_training(out, resume=resume):
            pass
    if name not in (None, ".lock"):
        assert (out / name).read_text() == "{}"


def test_several_trainings_need_a_directory_of_their_own(tmp_path):
    for resume in (False, True):
        check_repeats(tmp_path / "missing", resume)
        check_repeats(tmp_path, resume)
    (tmp_path / IDENTITY).write_text("{}")
    for resume, message in ((False, "never overwritten"), (True, "holds one training")):
        with pytest.raises(RunError, match=message):
            check_repeats(tmp_path, resume)


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


@pytest.mark.slow
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


@pytest.mark.slow
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
