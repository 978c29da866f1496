"""What a planted model has learnt, which words it knows, and when early stopping stops."""

from dataclasses import replace

import pytest
import torch

from reproduction.nlu import planted_models
from reproduction.nlu.planted_models import (
    BEST,
    LAST,
    PlantedModel,
    _Early,
    known_words,
    shape,
)
from reproduction.nlu.utterance_texts import read_parts
from reproduction.papers import settings_of
from reproduction.runner import make_trial
from vestige.training.history import EarlyStopping, EpochRecord

SMOKE = settings_of("nlu", "table2", "smoke")


@pytest.fixture
def model(tmp_path) -> PlantedModel:
    return PlantedModel(
        directory=tmp_path / "model", data=None, text=SMOKE.text, patterns=("pin:2", "color:2"),
        copies=10, learner=SMOKE.learner, seed=3,
    )  # fmt: skip


def test_secrets_are_planted_so_often_and_never_the_control(model) -> None:
    parts = read_parts(model.text, None)
    training, validation = model._planted(parts)
    said = [utterance.text for part in (training, validation) for utterance in part]
    for canary in model.canaries:
        assert said.count(" ".join(_filled(canary))) == canary.copies
    assert {canary.copies for canary in model.canaries} == {0, 10}
    assert len(said) == len(parts.training) + len(parts.validation) + 2 * 10


def _filled(canary) -> list[str]:
    """The words of an utterance, with the secret's in its places."""
    secret = iter(canary.secret)
    return [word if word is not None else next(secret) for word in canary.parsed.words]


def test_without_copies_nothing_is_planted(model) -> None:
    parts = read_parts(model.text, None)
    assert replace(model, copies=0)._planted(parts) == (parts.training, parts.validation)


def test_a_models_words_do_not_depend_on_what_was_planted(model) -> None:
    parts = read_parts(model.text, None)
    made = [replace(model, seed=seed, copies=copies)._fresh(parts) for seed, copies in
            ((3, 10), (3, 0), (4, 10))]  # fmt: skip
    assert len({one.vocabulary.fingerprint() for one in made}) == 1
    words = known_words(model.canary("pin:2").parsed)
    assert set("0123456789") & set(words)
    first, second, third = (dict(one.named_parameters()) for one in made)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)


@pytest.mark.parametrize(
    ("dropout", "characters", "wanted"),
    [
        (False, False, (0.0, 0.0, 0)),
        (True, False, (0.2, 0.1, 0)),
        (True, True, (0.2, 0.1, 30)),
    ],
)
def test_defences_are_settings_of_the_network(dropout, characters, wanted) -> None:
    made = shape(replace(SMOKE.learner, dropout=dropout, characters=characters))
    found = (made["input_dropout"], made["hidden_dropout"], made["char_filters"])
    assert found == wanted
    assert made["hidden_size"] == SMOKE.learner.hidden_size


def record(loss: float, epoch: int) -> EpochRecord:
    return EpochRecord(
        epoch=epoch, step=epoch, learning_rate=0.1, perplexity=1.0,
        validation_perplexity=loss, validation_accuracy=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("losses", "kept"),
    [
        ((3.0, 2.0, 1.0), 3),
        ((1.0, 2.0, 3.0), 1),
        ((3.0, 2.0, 2.5, 2.6, 1.0), 2),  # patience of 2 has ended before the last
        ((3.0, 2.0, 2.5, 1.0, 5.0), 4),
    ],
)
def test_early_stopping_keeps_the_best_weights_before_its_patience_ends(losses, kept) -> None:
    early = _Early(EarlyStopping(2))
    network = torch.nn.Linear(1, 1)
    for epoch, loss in enumerate(losses, 1):
        with torch.no_grad():
            network.weight.fill_(float(epoch))
        early(network, record(loss, epoch))
    assert early.epoch == kept
    assert early.weights["weight"].item() == kept
    assert len(early.records) == len(losses)


@pytest.mark.slow
def test_the_models_of_an_interrupted_trial_are_written_again(model, monkeypatch) -> None:
    made = planted_models.evaluate_utterances
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return made(*arguments)

    monkeypatch.setattr(planted_models, "evaluate_utterances", failing)
    with pytest.raises(KeyboardInterrupt):
        make_trial(model)
    assert (model.directory / LAST).is_dir()
    assert not model.kept
    make_trial(model)
    assert model.kept
    assert set(model.result()) == {"history", LAST, BEST}
    assert {f.split("/")[0] for f in model._files()} == {LAST, BEST}
