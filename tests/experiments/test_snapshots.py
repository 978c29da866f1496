"""Trainings that wait for one another, are found again, and never stand in for others."""

from dataclasses import replace
from pathlib import Path

import pytest

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import RunError
from vestige.experiments.snapshots import Training, is_finished, train_all
from vestige.models.lstm import LSTMConfig
from vestige.training.config import TrainingConfig

CORPUS = Corpus.from_texts(["the gate opens at nine", "nobody knows the code"] * 30)


def training(directory: Path, start: LSTMConfig | Path) -> Training:
    return Training(
        directory=directory,
        corpus=CORPUS,
        vocabulary=WordVocabulary.build(CORPUS, size=20),
        config=TrainingConfig(seed=0, epochs=1, batch_size=4, sequence_length=5),
        start=start,
        validation=CORPUS.take([0, 1]),
    )


@pytest.fixture
def chain(tmp_path: Path) -> list[Training]:
    """A model, and one that continues it, the later one first."""
    first = training(tmp_path / "first", LSTMConfig(layers=1, embedding_size=8, hidden_size=8))
    return [training(tmp_path / "second", first.directory), first]


def test_a_model_is_trained_after_the_one_it_continues(chain: list[Training]) -> None:
    said: list[str] = []
    train_all(chain, say=said.append)
    assert all(is_finished(each.directory) for each in chain)
    trained = [line for line in said if line.startswith("trained")]
    assert ["first" in trained[0], "second" in trained[1]] == [True, True]


def test_what_is_finished_is_not_trained_again(chain: list[Training]) -> None:
    train_all(chain)
    said: list[str] = []
    train_all(chain, say=said.append)
    assert not said


def test_a_finished_training_of_another_kind_is_refused(chain: list[Training]) -> None:
    train_all(chain)
    other = replace(chain[1], config=replace(chain[1].config, epochs=2))
    with pytest.raises(RunError, match="epochs = 1, not 2"):
        train_all([other])


def test_a_circle_is_refused(tmp_path: Path) -> None:
    circle = [training(tmp_path / a, tmp_path / b) for a, b in ("xy", "yx")]
    with pytest.raises(ValueError, match="circle"):
        train_all(circle)
