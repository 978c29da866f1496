"""What is measured of each training: as defined, and what the data do not allow is a note."""

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
    random = np.random.default_rng(5)
    phrases = dict.fromkeys(" ".join(random.permutation(WORDS)[:4]) for _ in range(200))
    encode_one = model().vocabulary.encode
    return [
        Canary(phrase, pattern, (), int(number < planted), tuple(encode_one(phrase)))
        for number, phrase in enumerate([*phrases][: planted + controls])
    ]


def measure(several, **given):
    defaults = {"canaries": (), "test": None, "seed": 0, "progress": lambda *_: None}
    return measure_models(several, **{**defaults, **given})


def naive_perplexity(one):
    """Of the test text, its ends included, from the table itself."""
    table, eos = one.log_table.double().numpy(), one.vocabulary.eos_id
    losses = []
    for line in TEXT:
        ids = [*one.vocabulary.encode(line), eos]
        losses += [-table[a, b] for a, b in zip([eos, *ids[:-1]], ids, strict=True)]
    return np.exp(np.mean(losses))


def test_the_perplexity_of_the_test_text_is_its_definition():
    several = trainings("a", "b")
    found, notes = measure(several, test=encode(TEXT, several[0].model.vocabulary))
    for one, measured in zip(several, found, strict=True):
        assert SeedGroup((measured,)).perplexity == pytest.approx(
            naive_perplexity(one.model), rel=1e-4
        )
        assert measured.frequency_perplexity is None
    assert [note.split(":")[0] for note in notes] == ["Cost of a", "Cost of b"]


def test_a_text_longer_than_one_piece_is_scored_whole():
    one = trainings("a")[0]
    long = encode(Corpus.from_texts([" ".join(WORDS * 40)]), one.model.vocabulary)
    [found], _ = measure([one], test=long)
    assert int(found.scores.tokens.sum()) == len(long.tokens) > 3 * 64


def test_of_a_training_its_cost_and_its_word_frequencies_are_known(tmp_path):
    paths = {name: training(tmp_path / name, n) for n, name in enumerate("ab")}
    several = load_trainings(paths, device="cpu")
    data, test = several[0].encoded("training"), encode(text(3), model().vocabulary)
    found, notes = measure(several, test=test)
    counts = np.bincount(data.tokens, minlength=len(model().vocabulary))
    kinds = len(set(data.tokens.tolist()))  # Witten-Bell: new words as often as new kinds came
    shares = (counts + kinds / len(counts)) / (len(data.tokens) + kinds)
    expected = np.exp(-np.log(shares[test.tokens]).mean())
    assert found[0].frequency_perplexity == pytest.approx(expected, rel=1e-6)
    assert found[0].cost["steps"] == 400
    assert all(one.scores is not None and one.completion is None for one in found)
    assert notes == []


def test_progress_never_goes_back_and_ends_at_all_trainings():
    steps = []
    measure(trainings(*"abc"), canaries=canaries(), progress=lambda *step: steps.append(step))
    shares = [done for done, _ in steps]
    assert shares == sorted(shares)
    assert {total for _, total in steps} == {3}
    assert {1.0, 2.0, 3.0} <= set(shares)


def test_without_canaries_leakage_is_not_measured_and_a_missing_control_is_noted_once():
    [found], notes = measure(trainings("a"))
    assert (found.canaries, found.completion, found.audit, found.scores) == (None,) * 4
    assert len(notes) == 1
    found, notes = measure(trainings("a", "b", "c"), canaries=canaries(planted=1, controls=0))
    assert [one.canaries for one in found] == [None] * 3
    [exposure] = [note for note in notes if note.startswith("Exposure:")]
    assert "there is no control" in exposure
    assert len(notes) == len(set(notes))


def test_the_same_seed_measures_the_same_exposure():
    asked = canaries()
    one, other = (measure(trainings("a"), canaries=asked, seed=3)[0][0] for _ in range(2))
    assert one.canaries == other.canaries
    assert len(one.bits("exposure", planted=True)) == 6
    assert one.audit is None  # no coins


# Measured epsilon, of canaries that coins flipped.


@pytest.mark.slow
def test_epsilon_is_measured_of_the_first_training_of_each_name():
    line = "Measured ε is of the first training of each name."
    for names, audited in (("aab", [True, False, True]), ("ab", [True, True])):
        found, notes = measure(trainings(*names), canaries=canaries("coin-flip"))
        assert [one.audit is not None for one in found] == audited
        assert (line in notes) == (names == "aab")


@pytest.mark.parametrize(("copies", "unit"), [(1, "sequence"), (2, "sequence"), (1, "user")])
def test_a_claim_of_single_sequences_is_tested_as_the_mechanism_that_it_states(copies, unit):
    claim = {
        "epsilon": 4.0, "delta": 1e-5, "unit": unit, "accountant": "rdp",
        "noise_multiplier": 2.16, "sample_rate": 1.0, "steps": 4,
    }  # fmt: skip
    asked = [replace(one, copies=one.copies * copies) for one in canaries("coin-flip")]
    [found], _ = measure(trainings("a", summary=claim), canaries=asked)
    stated = copies == 1 and unit == "sequence"
    expected = "DP-SGD of 4 steps at sample rate 1" if stated else "Gaussian mechanism"
    assert found.audit.mechanism_claimed == stated
    assert found.audit.f_dp.assumes == f"fair coins, {expected}"
