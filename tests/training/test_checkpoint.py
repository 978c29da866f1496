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

from vestige.errors import RunError, TrainingError
from vestige.training import checkpoint
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.steps import choose_precision, plain_step

CONFIG = TrainingConfig(
    seed=3, epochs=2, batch_size=4, sequence_length=5, learning_rate=0.01, checkpoint_every=4
)
KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"


class Killed(BaseException):
    """What no `except Exception` catches."""


def dying_step(at, config):
    """A plain step that dies before step `at`."""
    precision = choose_precision(config.precision, torch.device("cpu"))
    plain, taken = plain_step(max_grad_norm=5.0, precision=precision), []

    def step(model, batch, state):
        if len(taken) == at:
            raise Killed
        taken.append(1)
        return plain(model, batch, state)

    return step


@pytest.fixture
def run(make_model, make_text):
    """One small training with dropout, validation and the checkpoints of CONFIG."""

    def run(directory, *, architecture="lstm", die_at=None, resume=True, **changes):
        model = make_model(architecture)
        config = replace(CONFIG, **changes)
        history = train(
            model,
            make_text(121),
            validation=make_text(50, seed=1),
            config=config,
            directory=directory,
            step=dying_step(die_at, config),
            resume=resume,
        )
        return model, history

    return run


def left_behind(directory):
    """What a training leaves, without the seconds that it took."""
    with safe_open(directory / "checkpoint.safetensors", "pt") as file:
        held = {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
        position = timeless(file.metadata()["position"])
    weights = (directory / "model" / "model.safetensors").read_bytes()
    return [weights, held, position, timeless((directory / "history.json").read_text())]


def timeless(text):
    return re.sub(r'"seconds": [\d.e-]+', "", text)


def written(directory):
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.mark.slow
@pytest.mark.parametrize(  # each architecture, and each optimizer of a recurrent and another one
    ("architecture", "optimizer", "momentum"),
    [
        ("lstm", "adam", 0.0),
        ("tied lstm", "sgd", 0.0),
        ("gru", "sgd", 0.9),
        ("transformer", "adam", 0.0),
        ("transformer", "sgd", 0.9),
    ],
)
def test_interrupted_at_any_step_it_ends_in_the_same_bits(
    run, tmp_path, architecture, optimizer, momentum
):
    settings = {"architecture": architecture, "optimizer": optimizer, "momentum": momentum}
    model, history = run(tmp_path / "whole", **settings)
    steps = history.epochs[-1].step
    for step in range(steps):
        directory = tmp_path / str(step)
        with pytest.raises(Killed):
            run(directory, die_at=step, **settings)
        resumed, again = run(directory, **settings)
        assert again == history
        assert left_behind(directory) == left_behind(tmp_path / "whole")
        pairs = zip(model.parameters(), resumed.parameters(), strict=True)
        assert all(p.equal(q) for p, q in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("renamed", [False, True], ids=["before", "after"])
def test_interrupted_at_any_write_it_ends_in_the_same_bits(run, tmp_path, monkeypatch, renamed):
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


def test_interrupted_inside_a_file_it_ends_in_the_same_bits(run, tmp_path):
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
    steps = [json.loads(line)["step"] for line in log]
    assert steps == [6, 10, 12]


@pytest.mark.slow
def test_killed_by_the_system_it_ends_in_the_same_bits():
    command = [sys.executable, "-W", "error", str(KILLS), "training", "--times", "3"]
    sources = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(sources)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout.splitlines()[-1])["training"]
    assert result["happened"]["kills"] == 3
    assert result["faults"] == {}


def test_a_finished_training_answers_at_once_and_writes_nothing(run, tmp_path):
    model, history = run(tmp_path)
    before = left_behind(tmp_path), written(tmp_path)
    again, same = run(tmp_path, die_at=0)  # not one step is taken
    assert same == history
    # two processes may find the same training at the same time
    assert (left_behind(tmp_path), written(tmp_path)) == before
    assert again.head.weight.equal(model.head.weight)


def test_a_training_is_never_overwritten(run, tmp_path):
    run(tmp_path)
    with pytest.raises(TrainingError, match=r"already has a training.*--resume"):
        run(tmp_path, resume=False)


def test_a_model_without_its_training_is_never_overwritten(run, tmp_path):
    run(tmp_path)
    (tmp_path / "training.json").unlink()
    for resume in (False, True):
        with pytest.raises(TrainingError, match=r"not its training.*new directory"):
            run(tmp_path, resume=resume)


def test_files_of_other_kinds_may_lie_in_the_directory(run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run(tmp_path, resume=False)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_another_configuration_is_refused_by_name(run, tmp_path):
    run(tmp_path)
    with pytest.raises(TrainingError, match=r"config\.learning_rate was 0\.01 and is 0\.02"):
        run(tmp_path, learning_rate=0.02)


def test_a_directory_from_before_configurations_were_recorded_is_resumed(run, tmp_path):
    run(tmp_path)
    file = tmp_path / "training.json"
    identity = json.loads(file.read_text())
    del identity["model configuration"]
    file.write_text(json.dumps(identity))
    run(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": {"seed": 9}}, "model weights at the start"),
        ({"model": {"architecture": "tied lstm"}}, "model weights at the start"),
        (
            {"model": {"architecture": "transformer"}},
            "model architecture was lstm and is transformer",
        ),
        ({"data": {"seed": 9}}, "; data was |: data was "),
        ({"validation": {"seed": 9}}, "validation data was "),
        ({"validation": None}, "validation data was .* and is None"),
        ({"step": plain_step()}, "step was .*dying.* and is .*plain"),
    ],
)
def test_another_model_text_or_step_is_refused_by_name(
    run, make_model, make_text, tmp_path, change, named
):
    run(tmp_path)
    validation = change.get("validation", {"seed": 1})
    with pytest.raises(TrainingError, match=named):
        train(
            make_model(**change.get("model", {})),
            make_text(121, **change.get("data", {})),
            validation=None if validation is None else make_text(50, **validation),
            config=CONFIG,
            directory=tmp_path,
            step=change.get("step", dying_step(None, CONFIG)),
            resume=True,
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoint.safetensors", "training.json"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "replaced"])
def test_a_damaged_file_is_named_with_the_remedy(run, tmp_path, name, damage):
    run(tmp_path / "run")
    path = tmp_path / "run" / name
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "emptied": b""}.get(damage, b"[1, 2]"))
    with pytest.raises(TrainingError, match=rf"{name}.*Start again in a new directory"):
        run(tmp_path / "run")


def test_a_lost_model_is_written_again(run, tmp_path):
    run(tmp_path)
    before = left_behind(tmp_path)
    shutil.rmtree(tmp_path / "model")
    run(tmp_path)
    assert left_behind(tmp_path) == before


def test_a_place_that_cannot_be_written_is_named_with_the_remedy(run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"cannot be written.*writable directory"):
        run(tmp_path / "file")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(TrainingError, match=r"checkpoint.safetensors cannot be written.*space"):
        run(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_bfloat16_products_resume_to_the_same_bits(run, tmp_path, architecture):
    settings = {"architecture": architecture, "precision": "bfloat16"}
    run(tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        run(tmp_path / "cut", die_at=5, **settings)
    run(tmp_path / "cut", **settings)
    assert left_behind(tmp_path / "cut") == left_behind(tmp_path / "whole")


def test_resume_needs_a_directory(make_model, make_text):
    with pytest.raises(ValueError, match="resume"):
        train(make_model(), make_text(), config=CONFIG, resume=True)


def test_checkpoints_hold_chance_and_no_pickle(run, tmp_path):
    from safetensors.torch import load_file

    with pytest.raises(Killed):
        run(tmp_path, die_at=5)
    held = load_file(tmp_path / "checkpoint.safetensors")
    assert held["chance.cpu"].dtype == torch.uint8
    assert {"state.hidden", "state.cell", "optimizer.0.exp_avg", "loss"} <= held.keys()


def test_who_trains_in_a_directory_is_alone_there(run, tmp_path):
    code = "import sys; from pathlib import Path; from vestige.data.writing import alone\n"
    code += "with alone(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, tmp_path / "o"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"\n"
        with pytest.raises(RunError, match=rf"is in use by process {other.pid}"):
            run(tmp_path / "o")
        other.kill()
    run(tmp_path / "o")
    assert not list((tmp_path / "o").glob(".*"))
