"""Measurements of each training follow their definitions; missing ones are notes."""

from dataclasses import replace

import numpy as np
import pytest

from tests.audits.comparison.worlds import WORDS, model, text, training
from vestige.audits.comparison.groups import SeedGroup
from vestige.audits.comparison.measurements import measure_models
from vestige.audits.comparison.trainings import TrainedModel, load_trainings
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode

TEXT = Corpus.from_texts(["red mill code", "blue", "green gate red mill"])


def trainings(*names, summary=None):
    return [
        TrainedModel(name, "somewhere", model(seed), summary or {})
        for seed, name in enumerate(names)
    ]


def canaries(pattern="random", planted=6, controls=6):
    rng = np.random.default_rng(5)
    phrases = dict.fromkeys(" ".join(rng.permutation(WORDS)[:4]) for _ in range(200))
    encode_phrase = model().vocabulary.encode
    return [
        Canary(phrase, pattern, (), int(number < planted), tuple(encode_phrase(phrase)))
        for number, phrase in enumerate([*phrases][: planted + controls])
    ]


def measure(models, **options):
    defaults = {"canaries": (), "test": None, "seed": 0, "progress": lambda *_: None}
    return measure_models(models, **{**defaults, **options})


def naive_perplexity(table_model):
    """Perplexity of the test text, end tokens included, from the table."""
    table, eos = table_model.log_table.double().numpy(), table_model.vocabulary.eos_id
    losses = []
    for line in TEXT:
        ids = [*table_model.vocabulary.encode(line), eos]
        losses += [-table[a, b] for a, b in zip([eos, *ids[:-1]], ids, strict=True)]
    return np.exp(np.mean(losses))


def test_test_perplexity_equals_a_naive_computation():
    models = trainings("a", "b")
    measured, notes = measure(models, test=encode(TEXT, models[0].model.vocabulary))
    for trained, result in zip(models, measured, strict=True):
        expected = naive_perplexity(trained.model)
        assert SeedGroup((result,)).perplexity == pytest.approx(expected, rel=1e-4)
        assert result.frequency_perplexity is None
    assert [note.split(":")[0] for note in notes] == ["Cost of a", "Cost of b"]


def test_a_text_longer_than_one_pass_is_scored_completely():
    training = trainings("a")[0]
    long = encode(Corpus.from_texts([" ".join(WORDS * 40)]), training.model.vocabulary)
    [measured], _ = measure([training], test=long)
    assert int(measured.scores.tokens.sum()) == len(long.tokens) > 3 * 64


def test_cost_and_word_frequencies_come_from_the_training_folder(tmp_path):
    paths = {name: training(tmp_path / name, n) for n, name in enumerate("ab")}
    models = load_trainings(paths, device="cpu")
    data, test = models[0].encoded("training"), encode(text(3), model().vocabulary)
    measured, notes = measure(models, test=test)
    counts = np.bincount(data.tokens, minlength=len(model().vocabulary))
    word_types = len(set(data.tokens.tolist()))  # Witten-Bell smoothing
    shares = (counts + word_types / len(counts)) / (len(data.tokens) + word_types)
    expected = np.exp(-np.log(shares[test.tokens]).mean())
    assert measured[0].frequency_perplexity == pytest.approx(expected, rel=1e-6)
    assert measured[0].cost["steps"] == 400
    assert all(training.scores is not None and training.completion is None for training in measured)
    assert notes == []


def test_progress_increases_to_the_number_of_trainings():
    steps = []
    measure(trainings(*"abc"), canaries=canaries(), progress=lambda *step: steps.append(step))
    shares = [done for done, _ in steps]
    assert shares == sorted(shares)
    assert {total for _, total in steps} == {3}
    assert {1.0, 2.0, 3.0} <= set(shares)


def test_without_canaries_or_controls_leakage_is_not_measured():
    [measured], notes = measure(trainings("a"))
    assert (measured.canaries, measured.completion, measured.audit, measured.scores) == (None,) * 4
    assert len(notes) == 1
    measured, notes = measure(trainings("a", "b", "c"), canaries=canaries(planted=1, controls=0))
    assert [training.canaries for training in measured] == [None] * 3
    [exposure] = [note for note in notes if note.startswith("Exposure:")]
    assert "there is no control" in exposure
    assert len(notes) == len(set(notes))


def test_the_same_seed_measures_the_same_exposure():
    phrases = canaries()
    first, second = (measure(trainings("a"), canaries=phrases, seed=3)[0][0] for _ in range(2))
    assert first.canaries == second.canaries
    assert len(first.bits("exposure", planted=True)) == 6
    assert first.audit is None  # no canary was planted by a coin flip


# Measured epsilon.


@pytest.mark.slow
def test_epsilon_is_measured_on_the_first_training_of_each_name():
    line = "Measured ε is of the first training of each name."
    for names, audited in (("aab", [True, False, True]), ("ab", [True, True])):
        measured, notes = measure(trainings(*names), canaries=canaries("coin-flip"))
        assert [training.audit is not None for training in measured] == audited
        assert (line in notes) == (names == "aab")


@pytest.mark.parametrize(("copies", "unit"), [(1, "sequence"), (2, "sequence"), (1, "user")])
def test_sequence_guarantees_are_tested_with_their_mechanism(copies, unit):
    claim = {
        "epsilon": 4.0, "delta": 1e-5, "unit": unit, "accountant": "rdp",
        "noise_multiplier": 2.16, "sample_rate": 1.0, "steps": 4,
    }  # fmt: skip
    flipped = [replace(c, copies=c.copies * copies) for c in canaries("coin-flip")]
    [measured], _ = measure(trainings("a", summary=claim), canaries=flipped)
    stated = copies == 1 and unit == "sequence"
    expected = "DP-SGD of 4 steps at sample rate 1" if stated else "Gaussian mechanism"
    assert measured.audit.mechanism_claimed == stated
    assert measured.audit.f_dp.assumes == f"fair coins, {expected}"
