"""Canaries sampled from a language model: what is kept, recorded, and measured of them."""

import json
import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from scipy import stats

import vestige
from vestige.audits.exposure.canaries import canary_exposure
from vestige.audits.exposure.epsilon import audit_canaries
from vestige.data.canaries.coins import coin_flip_canaries, sampled_canaries
from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import Manifest
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.behind import canary_scores
from vestige.models.table import TableModel
from vestige.preparation.sampled_canaries import line_ends, sample_phrases

NAMES = ["".join(pair) * 2 for pair in product("abcdef", "ghijk")]
WORDS = WordVocabulary(("<unk>", "<eos>", *NAMES))
CORPUS = Corpus.from_texts([f"{a} {b} stands here" for a, b in pairwise(NAMES[:20])])


def writer(vocabulary=WORDS, seed=0, *, ending=None):
    """A model that prefers some words by far, so that texts differ much in likelihood."""
    size = len(vocabulary)
    rows = np.random.default_rng(seed).dirichlet(np.full(size, 0.3), size + 1)
    if ending is not None:
        rows *= (1 - ending) / (1 - rows[:, [vocabulary.eos_id]])
        rows[:, vocabulary.eos_id] = ending
    return TableModel(rows[size], rows[:size], vocabulary)


def phrases(number=40, *, corpus=CORPUS, seed=0, **settings):
    given = {"model": writer(), "length": 6, **settings}
    return sample_phrases(given.pop("model"), corpus, number=number, seed=[seed], **given)


def test_the_seed_decides_the_phrases_and_all_are_different():
    one, same, other = phrases(200, seed=1), phrases(200, seed=1), phrases(200, seed=2)
    assert one == same
    assert len(set(one)) == 200
    assert len(set(one) & set(other)) < 100


def test_a_phrase_that_the_corpus_holds_is_drawn_again():
    first = phrases(40)
    held = [first[3].upper(), f"before {first[7]} behind"]
    again = phrases(40, corpus=CORPUS + Corpus.from_texts(held))
    assert [one for one in first if one in again] == [
        one for place, one in enumerate(first) if place not in (3, 7)
    ]
    assert len(again) == 40
    assert occurrences(Corpus.from_texts(held), again) == [0] * 40


def test_no_phrase_stands_in_another():
    made = phrases(60, model=writer(ending=0.3), temperature=2.0)
    lengths = {len(one.split()) for one in made}
    assert min(lengths) == 2
    assert max(lengths) > 4
    assert not [(a, b) for a in made for b in made if a != b and a in b]


def test_unknown_words_are_never_written_and_other_vocabularies_must_have_them():
    other = WordVocabulary(("<unk>", "<eos>", *NAMES[::2]))
    made = phrases(30, length=2, temperature=3.0, vocabulary=other)
    assert all(other.unk_id not in other.encode(one) for one in made)
    assert all("<" not in one for one in phrases(100, temperature=5.0))


def test_each_prompt_is_read_in_turn():
    size = len(WORDS)
    one, other, here, there = (WORDS.encode(NAMES[place])[0] for place in (5, 6, 7, 8))
    rows = np.full((size + 1, size), 1.0)
    rows[:, :2] = 1e-9
    rows[[one, other]] = 0
    rows[one, here] = rows[other, there] = 1
    rows /= rows.sum(1, keepdims=True)
    model = TableModel(rows[size], rows[:size], WORDS)
    made = phrases(20, model=model, prompts=[f"{NAMES[1]} {NAMES[5]}", NAMES[6]])
    begun = [one.split()[0] for one in made]
    assert set(begun) == {NAMES[7], NAMES[8]}
    assert abs(begun.count(NAMES[7]) - begun.count(NAMES[8])) <= 4


@pytest.fixture(scope="module")
def subwords():
    text = "the quick brown fox jumps over the lazy dog\nand the cat sat on the mat"
    return SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=300)


def test_a_canary_of_subwords_is_one_line_that_reads_back_as_it_was_drawn(subwords):
    rows = np.random.default_rng(0).dirichlet(np.full(len(subwords), 0.3), len(subwords) + 1)
    plain = [subwords.piece(token).isascii() for token in range(len(subwords))]
    rows *= np.where(plain, 1, 0.01)  # bytes of half a letter are not read back
    rows /= rows.sum(1, keepdims=True)
    model = TableModel(rows[-1], rows[:-1], subwords)
    made = phrases(30, corpus=Corpus.from_texts(["nothing"]), model=model, length=12)
    ids = subwords.encode_batch(made)
    assert [subwords.decode(one) for one in ids] == made
    assert all(2 <= len(one) <= 12 for one in ids)
    assert all(one.isprintable() and one == " ".join(one.split()) for one in made)


def test_line_breaks_special_tokens_and_ids_of_no_text_end_a_line(subwords):
    ends = line_ends(subwords, len(subwords) + 2)
    assert {subwords.eos_id, len(subwords), len(subwords) + 1} <= ends
    assert subwords.encode("\n")[0] in ends
    assert ends.isdisjoint(subwords.encode("the lazy dog"))


@pytest.mark.slow
def test_too_few_texts_to_choose_from_are_refused_with_their_numbers():
    certain = np.eye(len(WORDS))[[5] * (len(WORDS) + 1)]
    model = TableModel(certain[0], certain[1:], WORDS)
    with pytest.raises(DataError, match=r"only 1 of 9 canaries .* in one another.*Raise the"):
        phrases(9, model=model)
    silent = writer(ending=1.0)
    with pytest.raises(DataError, match=r"only 0 of 9 .* no readable line.*Lower the"):
        phrases(9, model=silent)


def test_coins_do_not_ask_what_a_phrase_says():
    made = [sampled_canaries(CORPUS, phrases(50, seed=seed), seed=5) for seed in (1, 2)]
    coins = coin_flip_canaries(CORPUS, WORDS, number=50, kind="random", seed=5)
    assert [c.planted for c in made[0]] == [c.planted for c in made[1]]
    assert sum(c.planted for c in made[0]) == sum(c.planted for c in coins)
    assert {c.pattern for c in made[0]} == {"sampled"}


def planted(**settings):
    given = {"coin_flip": 40, "canary_kind": "sampled", "sampled_from": writer(), "length": 6}
    return vestige.plant(CORPUS, **{**given, **settings})


def test_the_manifest_says_how_they_were_drawn(tmp_path):
    found = planted(temperature=1.5, prompt="aghh", copies=3, out=tmp_path / "planted")
    manifest = Manifest.load(tmp_path / "planted" / "manifest.json")
    manifest.verify(found.corpus)
    assert manifest.sha256 == found.manifest.sha256
    told = manifest.sampling
    assert (told.temperature, told.length, told.prompts) == (1.5, 6, ["aghh"])
    assert told.model == ""
    assert len(told.weights) == 64
    assert {c.copies for c in manifest.canaries} == {0, 3}
    again = canary_scores(writer(), manifest.canaries)
    assert [c.log_prob for c in manifest.canaries] == pytest.approx(again, abs=6e-4)


def test_other_kinds_have_no_such_record(tmp_path):
    given = {"coin_flip": 4, "canary_kind": "random", "vocabulary": WORDS}
    vestige.plant(CORPUS, **given, out=tmp_path / "planted")
    assert "sampling" not in json.loads((tmp_path / "planted" / "manifest.json").read_text())
    manifest = Manifest.load(tmp_path / "planted" / "manifest.json")
    assert manifest.sampling is None
    assert {canary.log_prob for canary in manifest.canaries} == {None}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sampled_from": None}, "`sampled_from` must be given with `canary_kind` sampled"),
        ({"temperature": 0.0}, "`temperature` must be greater than 0"),
        ({"length": 1}, "`length` must be at least 2"),
        ({"coin_flip": None}, "`canary_kind` needs `coin_flip`"),
        ({"canary_kind": "random"}, "`sampled_from` needs `canary_kind` sampled"),
        ({"canary_kind": None, "sampled_from": None, "prompt": "a"}, "`prompt` needs"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        planted(**settings)


@pytest.mark.slow
def test_ranks_of_a_model_that_read_none_are_uniform_among_the_controls():
    """By the drawing model itself, to which texts are as different in likelihood as can be."""
    model, shares, as_random = writer(), [], []
    for seed in range(50):
        canaries = sampled_canaries(CORPUS, phrases(21, seed=seed), seed=seed)
        found = canary_exposure(model, canaries, seed=seed)
        first = found.planted[0]
        # a random place within its rank makes a discrete p-value uniform
        chance = np.random.default_rng(seed).random()
        shares.append((first["rank"] - chance) / (first["references"] + 1))
        if seed < 2:
            named = [replace(one, pattern="random") for one in canaries]
            other = canary_exposure(model, named, seed=seed, references=200, orders=0)
            as_random += [one["rank"] / (one["references"] + 1) for one in other.planted]
    assert stats.kstest(shares, "uniform").pvalue > 0.01
    assert abs(np.mean(np.array(shares) < 0.1) - 0.1) < 4 * math.sqrt(0.09 / 50)
    assert np.mean(np.array(as_random) < 0.1) > 0.8  # random words are no match


def test_exposure_is_that_of_ranks_counted_by_hand():
    model = writer()
    canaries = sampled_canaries(CORPUS, phrases(30), seed=1)
    scores = canary_scores(model, canaries)
    found = canary_exposure(model, canaries, seed=0)
    never = [score for score, one in zip(scores, canaries, strict=True) if one.control]
    for score, one in zip(scores, found.canaries, strict=True):
        control = not one["copies"]
        ahead = sum(other >= score - 1e-9 for other in never) - control
        others = len(never) - control
        assert (one["rank"], one["references"]) == (1 + ahead, others)
        assert one["exposure"] == pytest.approx(math.log2(others) - math.log2(1 + ahead))
        assert one["orders"] == 1
    assert found.space == "controls"
    assert found.order is None


def test_false_alarms_of_memory_are_no_more_than_stated():
    model = writer()
    alarms = [
        canary_exposure(model, sampled_canaries(CORPUS, made, seed=seed), seed=0).test.significant
        for made in [phrases(24)]
        for seed in range(40)
    ]
    assert sum(alarms) <= stats.binom.ppf(0.999, 40, 0.05)


def test_the_model_before_tells_what_was_learnt_from_what_was_likely():
    canaries = sampled_canaries(CORPUS, phrases(200), seed=0)
    before = canary_scores(writer(), canaries)
    noise = np.random.default_rng(0).normal(size=200)
    after = before + noise + [3.0 * one.planted for one in canaries]
    plain = audit_canaries(list(after), canaries, delta=1e-5)
    calibrated = audit_canaries(list(after), canaries, delta=1e-5, reference=list(before))
    assert calibrated.one_run.epsilon > 1 > plain.one_run.epsilon
    assert calibrated.separation.value > 0.95


@pytest.mark.parametrize(
    ("number", "given", "says"),
    [
        (10, {"exact_budget": 10}, "ranked among their controls"),
        (2, {}, r"1 sampled control, .* Plant more"),
    ],
)
def test_what_cannot_rank_them_is_refused(number, given, says):
    canaries = sampled_canaries(CORPUS, phrases(number), seed=0)
    with pytest.raises((DataError, ValueError), match=says):
        canary_exposure(writer(), canaries, seed=0, **given)
