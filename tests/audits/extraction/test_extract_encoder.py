"""A Hugging Face encoder is fine-tuned on planted utterances and attacked by the same command."""

import json

import pytest

from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances


@pytest.fixture(scope="module")
def tuned(shell, tiny_encoder, tmp_path_factory):
    root = tmp_path_factory.mktemp("encoder")
    towns = ("york", "bath")
    spoken = [
        Utterance((*words, town), (*["O"] * len(words), "B-city"), intent)
        for _ in range(6)
        for town in towns
        for words, intent in ((("fly", "to"), "Fly"), (("rain", "in"), "Ask"))
    ]
    write_utterances(Utterances.of(spoken), root / "said.jsonl")
    encoder = tiny_encoder(root / "bert")
    for words in (
        ("plant", root / "said.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", 30,
         "--controls", 8, "--out", root / "planted"),
        ("train", root / "planted", "--task", "nlu", "--from", encoder, "--epochs", 25,
         "--learning-rate", 0.01, "--batch-size", 8, "--device", "cpu", "--out", root / "tuned"),
    ):  # fmt: skip
        done = shell(*words)
        assert done.exit_code == 0, done.stderr
    return root


def test_a_secret_said_to_an_encoder_stands_out_and_controls_do_not(shell, tuned, tmp_path):
    words = ("--device", "cpu", "--json", "--out", tmp_path / "out")
    done = shell("extract", tuned / "tuned", tuned / "planted", *words)
    assert done.finished, done.stderr
    found = json.loads(done.stdout)
    assert found["planted_median_rank"] <= 10
    assert found["controls_median_rank"] > 20
    assert found["planted_exposure"] > found["controls_exposure"]


@pytest.mark.parametrize("attack", ["exact", "coordinate"])
def test_every_kind_of_attack_runs_on_an_encoder(shell, tuned, tmp_path, attack):
    words = ("--pattern", "pin:2", "--truth", "4 2", "--attack", attack, "--device", "cpu")
    done = shell("extract", tuned / "tuned", *words, "--json", "--out", tmp_path / "out")
    assert done.finished, done.stderr
    assert 1 <= json.loads(done.stdout)["median_rank"] <= 100
