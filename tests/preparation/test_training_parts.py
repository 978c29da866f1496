"""The parts of a training: its texts, its directory, its ancestors, and what is told of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from vestige.data.corpus import Corpus
from vestige.data.read_records import ReadRecords
from vestige.defences.defended_training import clip_advice
from vestige.defences.methods.dp_sgd import DPSGD
from vestige.defences.privacy_ledger import LedgerEntry, from_json
from vestige.defences.registry import NoDefence
from vestige.errors import DataError, RunError
from vestige.training.history import StopAtPerplexity
from vestige.training_runs import repeats
from vestige.workflows import privacy_files
from vestige.workflows.arguments import Call
from vestige.workflows.privacy_plan import Lineages, check_vocabulary, entry_of, log_all
from vestige.workflows.train import TrainingRequest, train
from vestige.workflows.training_data import read_texts, stop_of
from vestige.workflows.training_directory import IDENTITY, check_repeats, claimed
from vestige.workflows.training_run import log_kept
from vestige.preparation.options import ModelOptions, NluOptions
from vestige.training_options import TrainingOptions

LINES = [f"line {number} of the text" for number in range(40)]


class Listener:
    """A monitor that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def log(self, text):
        self.lines.append(text)


def request(tmp_path, **given):
    """A request for a training of running text, as `train` makes it."""
    usual = {
        "call": Call(train, {}), "monitor": Listener(), "data": Corpus.from_texts(LINES),
        "out": tmp_path / "out", "task": "text", "start": None, "resume": False, "preset": None,
        "model": ModelOptions(), "training": TrainingOptions(), "defence": NoDefence(),
        "nlu": NluOptions(), "validation": None, "hold_out": None, "seed": 0, "device": "cpu",
        "format": "auto", "text": "text", "user": None, "max_documents_per_user": None,
        "source": None, "tokens_column": "tokens", "tags_column": "tags",
        "intent_column": "intent", "limit": None,
    }  # fmt: skip
    return TrainingRequest(**{**usual, **given})


# texts


def test_documents_are_held_out_and_it_is_told(tmp_path):
    asked = request(tmp_path, hold_out=0.3)
    texts = read_texts(asked, None)
    assert len(texts.division.training) + len(texts.held) == len(LINES)
    assert asked.monitor.lines == [
        f"Held out: {len(texts.held)} of 40 documents, chosen by each document's hash"
    ]
    again = read_texts(replace(asked, seed=9), None)
    assert list(again.held) == list(texts.held)


def test_other_text_validates_in_place_of_a_share(tmp_path):
    held = Corpus.from_texts(["another line"] * 3)
    asked = request(tmp_path, validation=held)
    texts = read_texts(asked, None)
    assert texts.held is held
    assert len(texts.division.training) == len(LINES)
    assert asked.monitor.lines == []


def test_users_are_held_out_whole(tmp_path):
    users = [f"user {number % 10}" for number in range(40)]
    asked = request(tmp_path, data=Corpus.from_texts(LINES, users=users), hold_out=0.4)
    texts = read_texts(asked, None, by_user=True)
    found = [set(part.users) for part in (texts.division.training, texts.held)]
    assert not found[0] & found[1]
    with pytest.raises(DataError, match="nobody said whose each document is"):
        read_texts(request(tmp_path), None, by_user=True)


def test_a_training_that_ends_by_text_needs_some(tmp_path):
    stop = TrainingOptions(stop_at_perplexity=5.0)
    assert stop_of(request(tmp_path, training=stop)) == StopAtPerplexity(5.0)
    few = request(tmp_path, data=Corpus.from_texts(["one"]), training=stop, hold_out=0.01)
    with pytest.raises(ValueError, match="none was held out: give `validation`, or a larger"):
        read_texts(few, stop_of(few))


# the directory


def test_a_directory_is_claimed_and_given_back(tmp_path):
    out = tmp_path / "new"
    with pytest.raises(ValueError, match="no"), claimed(out, resume=False):
        raise ValueError("no")
    assert not out.exists()
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for resume, message in ((False, "never overwritten"), (True, "no training to resume")):
        with pytest.raises(RunError, match=message), claimed(out, resume=resume):
            pass
    (out / IDENTITY).write_text("{}")
    with claimed(out, resume=True):
        assert (out / "mine.txt").exists()


def test_several_trainings_need_a_directory_of_their_own(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / IDENTITY).write_text("{}")
    with pytest.raises(RunError, match="never overwritten"):
        check_repeats(tmp_path / "one", resume=False)
    with pytest.raises(RunError, match="holds one training"):
        check_repeats(tmp_path / "one", resume=True)
    for seed in (10, 9):
        (tmp_path / "several" / f"seed-{seed}").mkdir(parents=True)
    assert [path[-6:] for path in repeats(str(tmp_path / "several"))] == ["seed-9", "eed-10"]
    assert repeats(str(tmp_path / "one")) == (str(tmp_path / "one"),)


# ancestors


def records(*texts):
    return ReadRecords.of_texts(list(texts), [])


def test_a_new_training_makes_its_own_vocabulary(tmp_path):
    own = records("a", "b")
    lineages = Lineages.of(request(tmp_path), own)
    assert lineages.vocabulary == lineages.id
    assert set(lineages.kept) == {lineages.id}
    entry = entry_of(request(tmp_path), None, None, lineages)
    assert entry == LedgerEntry(id=lineages.id, defence="none", vocabulary=lineages.id)


def test_a_ledger_is_written_once_and_ended_beside_the_weights(tmp_path):
    out, own = tmp_path / "out", records("a", "b")
    lineages = Lineages.of(request(tmp_path), own)
    entry = entry_of(request(tmp_path), None, None, lineages)
    with privacy_files.registered(out, entry, lineages.model, lineages.kept):
        (out / IDENTITY).write_text("{}")
    begun = privacy_files.begun(out)
    assert begun.ledger == (entry,)
    assert np.array_equal(begun.read[entry.id].rows, own.rows)
    other = replace(entry, id="0" * 32)
    with privacy_files.registered(out, other, lineages.model, lineages.kept):
        pass
    assert privacy_files.begun(out).ledger == (entry,)  # what it was stays
    (out / "model").mkdir()
    privacy_files.end(out, steps=7)
    file = out / "model" / "privacy.json"
    assert from_json(file.read_bytes(), where=file)[-1].steps == 7
    resumed = Lineages.of(request(tmp_path), own)
    assert resumed.id == entry.id


def test_the_vocabulary_of_the_private_text_is_refused(tmp_path):
    private = DPSGD(noise_multiplier=1.0)
    asked = request(tmp_path, defence=private)
    lineages = Lineages.of(asked, records("a", "b"))
    with pytest.raises(ValueError, match="`defence` dp-sgd must come with `vocabulary` or `start`"):
        check_vocabulary(asked, lineages)
    check_vocabulary(replace(asked, defence=NoDefence()), lineages)
    accepted = replace(private, accept_private_vocabulary=True)
    check_vocabulary(replace(asked, defence=accepted), lineages)


# what is told


@pytest.mark.parametrize(
    ("change", "stop", "lines"),
    [
        ({}, None, ["Epoch 2 kept, validation perplexity 8.0"]),
        ({"validation_perplexity": None}, None, ["Epoch 2 kept, perplexity 9.0"]),
        (
            {"stopped": True},
            StopAtPerplexity(9.0),
            ["Stopped after 1,200 steps, as asked by --stop-at-perplexity", "Epoch 2 kept, valid"],
        ),
        ({}, StopAtPerplexity(5.0), ["Perplexity 5 was not reached: give more --epochs", "Epoch"]),
        (
            {"validation_perplexity": 5e7},
            None,
            ["Epoch 2 kept, validation perplexity 5e+07", "That is worse than guessing among 100"],
        ),
        (
            {"validation_perplexity": None, "perplexity": None},
            None,
            ["Epoch 2 kept, without a finite perplexity", "That is worse than guessing"],
        ),
        (
            {"word_frequency_perplexity": 7.0, "judged_by": "validation"},
            None,
            ["Epoch 2 kept", "It predicts no better than word frequencies"],
        ),
    ],
)
def test_the_kept_epoch_is_told_with_what_to_change(change, stop, lines):
    usual = {
        "epoch": 2.0, "steps": 1200, "stopped": False, "perplexity": 9.0,
        "validation_perplexity": 8.0,
    }  # fmt: skip
    told = Listener()
    log_kept({**usual, **change}, 100, stop, told)
    assert len(told.lines) == len(lines)
    for line, begin in zip(told.lines, lines, strict=True):
        assert line.startswith(begin)


def test_long_sentences_are_set_in():
    told = Listener()
    log_all(told, ["word " * 30, "short"], begin="Privacy: ")
    assert told.lines[0].startswith("Privacy: word")
    assert all(line.startswith("  ") for line in told.lines[1:])
    assert max(map(len, told.lines)) <= 100


def test_a_clipping_norm_that_nothing_reaches_gets_advice(tmp_path):
    log = tmp_path / "log.jsonl"

    def write(*shares):
        lines = [{"step": n, "clipped": c, "median_norm": 0.3} for n, c in enumerate(shares)]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write(0.0, 0.05)
    assert "--clip 0.3, near the median norm" in clip_advice(log)
    write(0.0, 0.5)
    assert clip_advice(log) is None
    log.write_text(json.dumps({"step": 1}) + "\n")
    assert clip_advice(log) is None
