"""`vestige.train`: what it takes, what it gives back, and what it refuses."""

import dataclasses
import json

import pytest
import torch

from tests.cli.shell import invoke
from tests.preparation.jobs import Told
from vestige import results
from vestige.data.corpus import Corpus
from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Goldfish
from vestige.errors import RunError
from vestige.models.checkpoints import load_model
from vestige.models.folders import fingerprint
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.train import train

LINES = ["the gate opens at nine", "the code of the gate is new", "nobody knows the code"] * 8
SONGS = Utterances.of([Utterance(("play", "song"), ("O", "B-song"), "Play")] * 9)
SMALL = ModelOptions(layers=1, hidden_size=8)
SHORT = TrainingOptions(epochs=1, batch_size=2, sequence_length=5)


@pytest.fixture
def letters():
    return Corpus.from_texts(LINES)


@pytest.fixture
def small(letters, tmp_path):
    return train(letters, out=tmp_path / "small", model=SMALL, training=SHORT)


def test_a_corpus_is_trained_on_and_the_result_says_where_the_model_is(small, letters, tmp_path):
    assert small.model == tmp_path / "small" / "model"
    assert load_model(small.model).vocabulary == load_model(tmp_path / "small").vocabulary
    saved = results.load(tmp_path / "small" / "run")
    assert small.summary == {"model": str(small.model), **saved.summary}
    assert small.rows == tuple(one.row() for one in small.history.epochs)
    assert saved.run["result"] == "DefendedTraining"
    assert saved.run["verb"] == "train"
    data = saved.run["data"]
    assert data["training"]["path"] is None
    held = saved.run["division"]["held_out_documents"]
    assert data["training"]["documents"] + held == len(letters)
    assert set(data) == ({"training", "validation"} if held else {"training"})
    assert small.record["configuration"]["defence"] == {"name": "none"}


def test_a_path_and_what_stands_in_it_give_the_same_bits(small, letters, tmp_path):
    file = tmp_path / "letters.txt"
    file.write_text("\n".join(LINES))
    again = train(str(file), out=tmp_path / "again", model=SMALL, training=SHORT)
    assert fingerprint(again.directory) == fingerprint(small.directory)
    assert results.load(again.directory / "run").run["data"]["training"]["path"] == str(file)


def test_a_loaded_model_is_continued_and_stays_as_it_is(small, letters, tmp_path):
    model = load_model(small.directory)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    of_object = train(letters, out=tmp_path / "one", from_=model, training=SHORT)
    of_path = train(letters, out=tmp_path / "two", from_=small.directory, training=SHORT)
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert fingerprint(of_object.directory) == fingerprint(of_path.directory)
    models = [results.load(one.directory / "run").run["models"] for one in (of_object, of_path)]
    assert models[0]["from"]["path"] is None
    assert models[1]["from"]["sha256"] == fingerprint(small.directory)
    ledgers = [
        json.loads((one.directory / "model" / "privacy.json").read_text())["trainings"]
        for one in (of_object, of_path)
    ]
    assert ledgers[0][0]["defence"] == "unknown"  # of an object nobody knows what it has read
    assert ledgers[1][0]["defence"] == "none"


@pytest.mark.slow
def test_a_private_training_tells_what_it_promises_and_records_its_noise(letters, tmp_path):
    told = Told()
    defence = DPSGD(noise_multiplier=1.0, accountant="rdp", accept_private_vocabulary=True)
    private = train(
        letters, out=tmp_path / "dp", model=SMALL, training=SHORT, defence=defence, monitor=told
    )
    assert any(line.startswith("Planned: ") for line in told.lines)
    assert any(line.startswith("Privacy: ε = ") for line in told.lines)
    assert told.tasks[-1] == "training"
    recorded = private.record["configuration"]["defence"]
    assert recorded["name"] == "dp-sgd"
    assert recorded["noise_multiplier"] == private.summary["noise_multiplier"] == 1.0
    assert private.record["privacy"]
    with pytest.raises(ValueError, match="pass `accept_private_vocabulary`"):
        train(
            letters,
            out=tmp_path / "refused",
            model=SMALL,
            training=SHORT,
            defence=dataclasses.replace(defence, accept_private_vocabulary=False),
        )
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_the_arguments_of_a_run_repeat_it(letters, tmp_path):
    file = tmp_path / "letters.txt"
    file.write_text("\n".join(LINES))
    first = train(
        str(file), out=tmp_path / "one", model=SMALL, training=SHORT, defence=Goldfish(k=3), seed=2
    )
    arguments = first.record["arguments"]
    assert (
        arguments.items()
        >= {
            "data": str(file),
            "out": str(tmp_path / "one"),
            "layers": 1,
            "hidden_size": 8,
            "epochs": 1,
            "batch_size": 2,
            "sequence_length": 5,
            "defence": "goldfish",
            "k": 3,
            "seed": 2,
        }.items()
    )
    done = invoke(["train", "--config", tmp_path / "one", "--out", tmp_path / "two"])
    assert done.exit_code == 0, done.stderr
    assert fingerprint(tmp_path / "two") == fingerprint(first.directory)


@pytest.mark.slow
def test_several_seeds_are_several_trainings(letters, tmp_path):
    found = train(letters, out=tmp_path / "out", model=SMALL, training=SHORT, seed=4, seeds=2)
    assert [one.directory.name for one in found.trainings] == ["seed-4", "seed-5"]
    assert [row["model"] for row in found.rows] == [str(one.model) for one in found.trainings]
    alone = train(letters, out=tmp_path / "one", model=SMALL, training=SHORT, seed=5)
    assert fingerprint(alone.directory) == fingerprint(found.trainings[1].directory)


def test_a_finished_training_is_found_again_and_never_overwritten(small, letters):
    with pytest.raises(RunError, match="exists already"):
        train(letters, out=small.directory, model=SMALL, training=SHORT)
    again = train(letters, out=small.directory, model=SMALL, training=SHORT, resume=True)
    assert again.summary == small.summary


def test_utterances_are_trained_on(tmp_path):
    rows = [
        {"tokens": ["play", artist], "tags": ["O", "B-artist"], "intent": "play"}
        for artist in ("ann", "bob", "cy", "dee")
    ] * 5
    file = tmp_path / "said.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    utterances = read_utterances(file).train
    small = {
        "task": "nlu",
        "model": ModelOptions(hidden_size=4, layers=1),
        "training": TrainingOptions(epochs=1),
    }
    one = train(utterances, out=tmp_path / "one", **small)
    two = train(str(file), out=tmp_path / "two", **small)
    assert one.summary["task"] == "nlu"
    assert fingerprint(one.directory) == fingerprint(two.directory)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "demo", "task": "next-word"}, "`preset` needs `task` text"),
        ({"task": "nlu", "defence": Goldfish()}, "`defence` needs `task` text or next-word"),
        ({"nlu": NluOptions(lowercase=True)}, "`lowercase` needs `task` nlu"),
        (
            {"task": "translation", "model": ModelOptions(layers=2)},
            "`layers` needs `task` text or next-word or nlu",
        ),
        (
            {"from_": "nowhere", "model": ModelOptions(layers=2)},
            "`layers` does not go with `from_`",
        ),
        (
            {"from_": "nowhere", "model": ModelOptions(tokenizer="bpe")},
            "`tokenizer` does not go with `from_`",
        ),
        ({"model": ModelOptions(lora_rank=2)}, "`lora_rank` needs `from_`"),
        (
            {"model": ModelOptions(vocabulary="a", vocab_size=5)},
            "`vocab_size` does not go with `vocabulary`",
        ),
        (
            {"training": TrainingOptions(stop_at_perplexity=1.0)},
            "`stop_at_perplexity` must be greater than 1",
        ),
        (
            {"task": "next-word", "model": ModelOptions(architecture="transformer")},
            "`architecture` must be lstm or gru with `task` next-word",
        ),
        (
            {"task": "dialogue", "model": ModelOptions(architecture="transformer")},
            "`architecture` must be lstm or gru with `task` dialogue",
        ),
        (
            {"task": "nlu", "nlu": NluOptions(dropout=True), "from_": "saved"},
            "`dropout` does not go with `from_`",
        ),
        (
            {"data": SONGS, "task": "nlu", "validation": SONGS, "hold_out": 0.2},
            "`validation` and `hold_out` must not be given together",
        ),
        (
            {"training": TrainingOptions(batching="stream"), "defence": Goldfish()},
            "`batching` stream must not come with `defence` goldfish",
        ),
        (
            {"task": "nlu", "nlu": NluOptions(patience=3)},
            "`patience` needs `early_stopping`",
        ),
        (
            {"task": "nlu", "nlu": NluOptions(vectors_frozen=True)},
            "`vectors_frozen` needs `vectors`",
        ),
    ],
)
def test_parameters_that_do_not_go_together_are_named_and_leave_nothing(
    letters, tmp_path, given, message
):
    with pytest.raises(ValueError, match=message):
        train(**{"data": letters, **given}, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
