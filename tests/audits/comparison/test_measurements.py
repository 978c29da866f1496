"""What is measured of each training: as defined, and what the data do not allow is a note."""

from dataclasses import replace

import numpy as np
import pytest

from vestige.audits.comparison.groups import Group
from vestige.audits.comparison.measurements import measure_models
from vestige.audits.comparison.trainings import TrainedModel
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green", "gate", "mill", "code")
TEXT = Corpus.from_texts(["red mill code", "blue", "green gate red mill"])


def model(seed):
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    chance, size = np.random.default_rng(seed), len(vocabulary)
    return TableModel(np.full(size, 1 / size), chance.dirichlet(np.ones(size), size), vocabulary)


def trainings(*names):
    return [TrainedModel(name, "somewhere", model(seed)) for seed, name in enumerate(names)]


def canaries(pattern="random", planted=6, controls=6):
    chance = np.random.default_rng(5)
    phrases = [" ".join(chance.permutation(WORDS)[:4]) for _ in range(200)]
    phrases = list(dict.fromkeys(phrases))[: planted + controls]
    encode_one = model(0).vocabulary.encode
    return [
        Canary(phrase, pattern, (), int(number < planted), tuple(encode_one(phrase)))
        for number, phrase in enumerate(phrases)
    ]


def measure(several, **named):
    given = {"canaries": (), "test": None, "seed": 0, "progress": lambda *_: None, **named}
    return measure_models(several, **given)


def perplexity(one):
    """Of the test text, its ends included, from the table itself."""
    table, eos = one.log_table.double().numpy(), one.vocabulary.eos_id
    losses = []
    for text in TEXT:
        ids = [*one.vocabulary.encode(text), eos]
        losses += [-table[a, b] for a, b in zip([eos, *ids[:-1]], ids, strict=True)]
    return np.exp(np.mean(losses))


def test_the_perplexity_of_the_test_text_is_its_definition():
    several = trainings("a", "b")
    test = encode(TEXT, several[0].model.vocabulary)
    found, notes = measure(several, test=test)
    for one, measured in zip(several, found, strict=True):
        assert Group((measured,)).perplexity == pytest.approx(perplexity(one.model), rel=1e-4)
    assert [note.split(":")[0] for note in notes] == ["Cost of a", "Cost of b"]


def test_a_text_longer_than_one_piece_is_scored_whole():
    one = trainings("a")[0]
    long = encode(Corpus.from_texts([" ".join(WORDS * 40)]), one.model.vocabulary)
    [found], _ = measure([one], test=long)
    assert int(found.scores.tokens.sum()) == len(long.tokens) > 3 * 64


def test_progress_never_goes_back_and_ends_at_all_trainings():
    steps = []
    measure(
        trainings("a", "b", "c"),
        canaries=canaries(),
        progress=lambda done, total: steps.append((done, total)),
    )
    shares = [done for done, _ in steps]
    assert shares == sorted(shares)
    assert {total for _, total in steps} == {3}
    assert {1.0, 2.0, 3.0} <= set(shares)


def test_without_canaries_nothing_is_said_of_leakage():
    [found], notes = measure(trainings("a"))
    assert (found.canaries, found.completion, found.audit, found.scores) == (None,) * 4
    assert len(notes) == 1


def test_only_coins_tell_of_epsilon():
    [found], _ = measure(trainings("a"), canaries=canaries("random"))
    assert found.audit is None
    assert found.canaries is not None


@pytest.mark.slow
def test_epsilon_is_measured_of_the_first_training_of_each_name_and_it_is_told():
    found, notes = measure(trainings("a", "a", "b"), canaries=canaries("coin-flip"))
    assert [one.audit is not None for one in found] == [True, False, True]
    assert "Measured ε is of the first training of each name." in notes
    _, alone = measure(trainings("a", "b"), canaries=canaries("coin-flip"))
    assert not any("first training of each name" in note for note in alone)


@pytest.mark.parametrize(("copies", "unit"), [(1, "sequence"), (2, "sequence"), (1, "user")])
def test_a_claim_of_single_sequences_is_tested_as_the_mechanism_that_it_states(copies, unit):
    claim = {"epsilon": 4.0, "delta": 1e-5, "unit": unit, "accountant": "rdp"}
    claim |= {"noise_multiplier": 2.16, "sample_rate": 1.0, "steps": 4}
    one = TrainedModel("a", "somewhere", model(0), claim)
    asked = [replace(c, copies=c.copies * copies) for c in canaries("coin-flip")]
    [found], _ = measure([one], canaries=asked)
    stated = copies == 1 and unit == "sequence"
    assert found.audit.mechanism_claimed == stated
    expected = "DP-SGD of 4 steps at sample rate 1" if stated else "Gaussian mechanism"
    assert found.audit.f_dp.assumes == f"fair coins, {expected}"


def test_what_all_trainings_lack_is_noted_once():
    only = canaries(planted=1, controls=0)
    _, notes = measure(trainings("a", "b", "c"), canaries=only)
    assert len([note for note in notes if note.startswith("Exposure:")]) == 1
    assert len(notes) == len(set(notes))


def test_the_same_seed_measures_the_same_exposure():
    asked = canaries()
    one, other = (measure(trainings("a"), canaries=asked, seed=3)[0][0] for _ in range(2))
    assert one.canaries == other.canaries
    assert len(one.bits("exposure", planted=True)) == 6
