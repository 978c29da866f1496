"""Interrupted at any moment, a training ends in the same bits; or says why it cannot."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.training import worlds
from tests.training.worlds import Killed, encoded, language_model, numbers, stream, weights
from vestige.data.encoded import EncodedPairs
from vestige.errors import RunError, TrainingError
from vestige.training import checkpoint
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import evaluate
from vestige.training.loop import learn, train
from vestige.training.steps import plain_step
from vestige.training.tasks import PairTask

CONFIG = TrainingConfig(
    seed=3, epochs=2, batch_size=4, sequence_length=5, learning_rate=0.01, checkpoint_every=4
)
ROOT = Path(__file__).parents[2]
LSTM = worlds.of_words("lstm")


def run(directory, *, world=LSTM, die_at=None, resume=True, **changes):
    """A small training with dropout, validation and the checkpoints of CONFIG."""
    config = replace(CONFIG, **changes)
    model, step = world.fresh(), world.dying_step(die_at, config)
    history = learn(model, world.task, config=config, directory=directory, step=step, resume=resume)
    return model, history


def left_behind(directory):
    """What a training leaves, without the seconds that it took."""
    with safe_open(directory / "checkpoint.safetensors", "pt") as file:
        held = {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
        position = timeless(file.metadata()["position"])
    model = {path.name: path.read_bytes() for path in (directory / "model").glob("*.safetensors")}
    assert model
    return [model, held, position, timeless((directory / "history.json").read_text())]


def timeless(text):
    return re.sub(r'"seconds": [\d.e-]+', "", text)


# A kill


SGD = {"optimizer": "sgd", "momentum": 0.9}
TRAININGS = {
    "lstm": (LSTM, {}),
    "tied lstm": (worlds.of_words("tied lstm"), {"optimizer": "sgd"}),
    "gru": (worlds.of_words("gru"), SGD),
    "transformer": (worlds.of_words("transformer"), {}),
    "transformer, sgd": (worlds.of_words("transformer"), SGD),
    "lstm, bfloat16": (LSTM, {"precision": "bfloat16"}),
    "transformer, bfloat16": (worlds.of_words("transformer"), {"precision": "bfloat16"}),
    "translator": (worlds.of_numbers(), {}),
    "translator without attention": (worlds.of_numbers(attention=False), SGD),
    "translator, gru": (worlds.of_numbers(cell="gru"), {}),
    "intents": (worlds.of_towns(), {}),
    "intents, last kept": (worlds.of_towns(), {"keep": "last"}),
    "gpt2": ("gpt2", {"sequence_length": 8}),
    "adapter": ("adapter", {"sequence_length": 8}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("world", "changes"), TRAININGS.values(), ids=TRAININGS)
def test_interrupted_at_any_step_it_ends_in_the_same_bits(world, changes, gpt2, tmp_path):
    world = gpt2(world) if isinstance(world, str) else world
    model, history = run(tmp_path / "whole", world=world, **changes)
    steps = history.epochs[-1].step
    assert steps >= 12
    for step in range(0, steps, 1 if steps < 20 else steps // 3):
        directory = tmp_path / str(step)
        with pytest.raises(Killed):
            run(directory, world=world, die_at=step, **changes)
        resumed, again = run(directory, world=world, **changes)
        assert again == history
        assert left_behind(directory) == left_behind(tmp_path / "whole")
        assert weights(resumed).equal(weights(model))
    for directory in (tmp_path / "whole", tmp_path / "0"):
        assert weights(world.load(directory, device="cpu")).equal(weights(model))


@pytest.mark.slow
@pytest.mark.parametrize("renamed", [False, True], ids=["before", "after"])
def test_interrupted_at_any_write_it_ends_in_the_same_bits(tmp_path, monkeypatch, renamed):
    run(tmp_path / "whole")
    rename, died = os.replace, 0
    while True:
        left = [died]

        def dying(source, target, left=left):
            left[0] -= 1
            if left[0] == -1 and not renamed:
                raise Killed
            rename(source, target)
            if left[0] == -1:
                raise Killed

        directory = tmp_path / str(died)
        monkeypatch.setattr(os, "replace", dying)
        try:
            run(directory)
            break
        except Killed:
            died += 1
        finally:
            monkeypatch.setattr(os, "replace", rename)
        run(directory)
        assert left_behind(directory) == left_behind(tmp_path / "whole")
    assert died >= 8


def test_interrupted_inside_a_file_it_ends_in_the_same_bits(tmp_path):
    run(tmp_path / "whole")
    directory = tmp_path / "cut"
    with pytest.raises(Killed):
        run(directory, die_at=9)
    for name in ("checkpoint.safetensors", "history.json", "training.json"):
        half = (directory / name).read_bytes()
        (directory / f".{name}").write_bytes(half[: len(half) // 2])
    with (directory / "log.jsonl").open("a") as log:
        log.write('{"step": 8, "lo')
    run(directory)
    assert left_behind(directory) == left_behind(tmp_path / "whole")
    log = (directory / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == [6, 10, 12]


@pytest.mark.slow
def test_killed_by_the_system_it_ends_in_the_same_bits():
    kills = ROOT / "benchmarks" / "kills.py"
    command = [sys.executable, "-W", "error", str(kills), "training", "--times", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout.splitlines()[-1])["training"]
    assert result["happened"]["kills"] == 3
    assert result["faults"] == {}


# A directory that has a training


def test_a_finished_training_answers_at_once_and_writes_nothing(tmp_path):
    def written():
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    model, history = run(tmp_path)
    before = left_behind(tmp_path), written()
    again, same = run(tmp_path, die_at=0)  # not one step is taken
    assert same == history
    # two processes may find the same training at the same time
    assert (left_behind(tmp_path), written()) == before
    assert weights(again).equal(weights(model))


def test_a_lost_model_is_written_again_and_a_training_never_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run(tmp_path, resume=False)
    before = left_behind(tmp_path)
    shutil.rmtree(tmp_path / "model")
    run(tmp_path)
    assert left_behind(tmp_path) == before
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(TrainingError, match=r"already has a training.*--resume"):
        run(tmp_path, resume=False)
    (tmp_path / "training.json").unlink()
    for resume in (False, True):
        with pytest.raises(TrainingError, match=r"not its training.*new directory"):
            run(tmp_path, resume=resume)


OTHERS = {
    "weights": ({"fresh": lambda: language_model(seed=9)}, "model weights at the start"),
    "shape": ({"fresh": lambda: language_model("tied lstm")}, "model weights at the start"),
    "architecture": (
        {"fresh": lambda: language_model("transformer")},
        "model architecture was lstm and is transformer",
    ),
    "text": ({"task": replace(LSTM.task, data=stream(seed=9))}, "; data was |: data was "),
    "validation": (
        {"task": replace(LSTM.task, validation=stream(50, seed=9))},
        "validation data was ",
    ),
    "no validation": (
        {"task": replace(LSTM.task, validation=None)},
        "validation data was .* and is None",
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished")
    run(directory)
    return directory


@pytest.mark.parametrize(("change", "named"), OTHERS.values(), ids=OTHERS)
def test_another_model_or_text_is_refused_by_name(finished, change, named):
    with pytest.raises(TrainingError, match=named):
        run(finished, world=replace(LSTM, **change))


def test_another_configuration_or_step_is_refused_by_name(finished):
    with pytest.raises(TrainingError, match=r"config\.learning_rate was 0\.01 and is 0\.02"):
        run(finished, learning_rate=0.02)
    how = {"config": CONFIG, "directory": finished, "step": plain_step(), "resume": True}
    with pytest.raises(TrainingError, match=r"step was .*dying.* and is .*plain"):
        learn(LSTM.fresh(), LSTM.task, **how)


@pytest.mark.parametrize("changed", ["sources", "targets", "validation", "references"])
def test_a_training_of_other_pairs_is_not_resumed(tmp_path, changed):
    corpus, other = numbers(20), encoded(numbers(20, seed=2))
    pairs = encoded(corpus)
    first = PairTask(pairs, pairs, tuple(corpus))
    if changed == "references":
        second = replace(first, references=("one",) * 20)
    elif changed == "validation":
        second = replace(first, validation=EncodedPairs(other.sources, pairs.targets))
    else:
        second = replace(first, data=replace(pairs, **{changed: getattr(other, changed)}))
    how = {"config": replace(CONFIG, epochs=1), "directory": tmp_path}
    learn(worlds.translator(), first, **how)
    with pytest.raises(TrainingError):
        learn(worlds.translator(), second, resume=True, **how)


def test_a_training_of_other_utterances_is_not_resumed(tmp_path):
    how = {"config": replace(CONFIG, epochs=1), "directory": tmp_path}
    learn(worlds.listener(), worlds.listening(), **how)
    with pytest.raises(TrainingError):
        learn(worlds.listener(), worlds.listening(count=41), resume=True, **how)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoint.safetensors", "training.json"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "replaced"])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, name, damage):
    run(tmp_path / "run")
    path = tmp_path / "run" / name
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "emptied": b""}.get(damage, b"[1, 2]"))
    with pytest.raises(TrainingError, match=rf"{name}.*Start again in a new directory"):
        run(tmp_path / "run")


def test_a_place_that_cannot_be_written_is_named_with_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"cannot be written.*writable directory"):
        run(tmp_path / "file")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(TrainingError, match=r"checkpoint.safetensors cannot be written.*space"):
        run(tmp_path / "run")


def test_resume_needs_a_directory():
    with pytest.raises(ValueError, match="resume"):
        train(language_model(), stream(), config=CONFIG, resume=True)


def test_checkpoints_hold_chance(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, die_at=5)
    held = load_file(tmp_path / "checkpoint.safetensors")
    assert held["chance.cpu"].dtype == torch.uint8
    assert {"state.hidden", "state.cell", "optimizer.0.exp_avg", "loss"} <= held.keys()


def test_an_adapter_learns_and_its_checkpoint_holds_the_adapter_alone(gpt2, tmp_path):
    world = gpt2("adapter")
    text = world.task.data
    before = evaluate(world.fresh(), text, sequence_length=8).perplexity
    model, _ = run(tmp_path, world=world, epochs=3, batch_size=2, sequence_length=8)
    assert evaluate(model, text, sequence_length=8).perplexity < before
    held = load_file(tmp_path / "checkpoint.safetensors")
    names = [name for name in held if name.startswith("model.")]
    assert names
    assert all("lora" in name for name in names)
    ids = torch.tensor([text.tokens[:8].tolist()])
    assert world.load(tmp_path, device="cpu")(ids)[0].equal(model(ids)[0])


def test_who_trains_in_a_directory_is_alone_there(tmp_path):
    code = "import sys; from pathlib import Path; from vestige.data.writing import lock_directory\n"
    code += "with lock_directory(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, tmp_path / "o"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"\n"
        with pytest.raises(RunError, match=rf"is in use by process {other.pid}"):
            run(tmp_path / "o")
        other.kill()
    run(tmp_path / "o")
    assert not list((tmp_path / "o").glob(".*"))
