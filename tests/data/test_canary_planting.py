"""Planting adds copies at uniform positions, and manifests detect changes (text and utterances)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data.canaries.patterns import paper_pattern
from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.canaries.utterances import SecretManifest, plant_secrets, secret_canaries
from vestige.data.corpus import Corpus
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError, ManifestError

ONE = Canary("a b", "given", (0, 0), 1)


def check_uniform(positions):
    """A chi-squared test that ten positions have equal probability."""
    counts = np.bincount(positions, minlength=10)
    expected = len(positions) / 10
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 27.9  # 0.999 quantile at 9 degrees of freedom


@pytest.fixture(scope="module")
def canaries(corpus, vocabulary):
    return frequency_canaries(corpus, vocabulary, copies=7, seed=0)


@pytest.fixture(scope="module")
def planting(corpus, vocabulary, canaries):
    return plant(corpus, canaries, seed=3, vocabulary=vocabulary)


def test_planting_only_adds_copies_and_records_their_positions(
    corpus, vocabulary, planting, canaries
):
    planted, manifest = planting
    texts, phrases = list(planted), {canary.phrase for canary in canaries}
    assert len(planted) == len(corpus) + 28
    rest = planted.take([i for i, text in enumerate(texts) if text not in phrases])
    assert rest.fingerprint() == corpus.fingerprint() == manifest.corpus
    assert manifest.planted == planted.fingerprint()
    assert manifest.vocabulary == vocabulary.fingerprint()
    for canary, indices in zip(manifest.canaries, manifest.positions, strict=True):
        assert list(indices) == [i for i, text in enumerate(texts) if text == canary.phrase]
        assert len(indices) == canary.copies
        assert vocabulary.decode(canary.ids) == canary.phrase


def test_copies_have_no_source_and_the_given_user(corpus, canaries):
    texts = list(corpus)
    planted, _ = plant(Corpus.from_texts(texts, sources=texts), canaries, seed=3)
    phrases = {canary.phrase for canary in canaries}
    assert planted.sources == ["" if text in phrases else text for text in planted]
    planted, manifest = plant(corpus, canaries, seed=0, user="mallory")
    assert planted.users.count("mallory") == 28
    assert all(planted.users[position] == "mallory" for position in manifest.positions[0])


@pytest.mark.slow
def test_positions_are_uniform_and_depend_on_the_seed(corpus, canaries):
    first = plant(corpus, canaries, seed=3)[1]
    assert plant(corpus, canaries, seed=3)[1] == first
    assert plant(corpus, canaries, seed=4)[1].positions != first.positions
    nine = Corpus.from_texts(["x"] * 9)
    check_uniform([plant(nine, [ONE], seed=seed)[1].positions[0][0] for seed in range(600)])


@settings(max_examples=25)
@given(st.integers(0, 6), st.integers(1, 5), st.integers(0, 9))
def test_copies_may_be_at_any_position(size, copies, seed):
    corpus = Corpus.from_texts([f"text {i}" for i in range(size)])
    planted, manifest = plant(corpus, [replace(ONE, copies=copies)], seed=seed)
    manifest.verify(planted)
    assert [text for text in planted if text != "a b"] == list(corpus)


def test_canaries_that_cannot_be_planted_are_refused(corpus, vocabulary, planting):
    with pytest.raises(ValueError, match="one with copies"):
        plant(corpus, [replace(ONE, copies=0)], seed=0)
    with pytest.raises(ValueError, match="all different"):
        plant(corpus, [ONE] * 2, seed=0)
    with pytest.raises(ValueError, match=r"`copies` must be at most 1,000,000 in all"):
        plant(corpus, [replace(ONE, copies=10**9)], seed=0)
    unknown = replace(ONE, phrase=f"{vocabulary.words[2]} xyzzy")
    with pytest.raises(DataError, match=r"canary 1 has words .* lacks: 2 of 2"):
        plant(corpus, [unknown], seed=0, vocabulary=vocabulary)
    with pytest.raises(DataError, match="already contains"):
        plant(planting[0], planting[1].canaries, seed=0)


def test_a_changed_corpus_is_detected(planting):
    planted, manifest = planting
    position, first = manifest.positions[0][0], manifest.canaries[0]
    fewer = planted.take([i for i in range(len(planted)) if i != position])
    with pytest.raises(ManifestError, match="occurs 6 times in the corpus, not 7 time") as caught:
        manifest.verify(fewer)
    assert caught.value.problem.startswith("canary 1 ")
    assert first.phrase not in caught.value.problem

    def extended(text):
        return planted + Corpus.from_texts([text], users=["x"])

    with pytest.raises(ManifestError, match="occurs 8 times"):
        manifest.verify(extended(f"He said: {manifest.canaries[1].phrase}!"))
    number, control = next((n, c) for n, c in enumerate(manifest.canaries, 1) if c.control)
    with pytest.raises(ManifestError, match=f"control {number} occurs 1 times"):
        manifest.verify(extended(control.phrase))
    with pytest.raises(ManifestError, match="are not at their positions"):
        manifest.verify(planted.take(np.arange(len(planted))[::-1]))
    _, manifest = plant(Corpus.from_texts(["x"] * 20), [replace(ONE, copies=3)], seed=0)
    with pytest.raises(ManifestError, match="are not at their positions"):
        manifest.verify(Corpus.from_texts(["a b"] * 3))  # all copies and no other text


def utterances(number, word="play"):
    return Utterances.of(
        Utterance((word, f"song{i}"), ("O", "B-song"), "PlayMusic") for i in range(number)
    )


def secrets(copies=25):
    """A PIN, three colours and a name, each with a control."""
    canaries = []
    for shorthand in ("pin:4", "color:3"):
        text, intent = paper_pattern(shorthand)
        canaries += secret_canaries(text, intent=intent, copies=copies, seed=0)
    names = {"name": ("ann", "bob", "cid", "dan")}
    options = {"intent": "Wake", "slot": "who", "candidates": names, "copies": 1, "seed": 0}
    return (*canaries, *secret_canaries("wake {name} now", **options))


@pytest.fixture(scope="module")
def planted_utterances():
    return plant_secrets(utterances(60), utterances(20, "stop"), secrets(), seed=5)


def test_utterances_are_only_added_and_recorded_in_both_parts(planted_utterances):
    train, validation, manifest = planted_utterances
    planted = {canary.utterance for canary in manifest.canaries}
    positions = (manifest.train_positions, manifest.validation_positions)
    parts = zip(
        (train, validation), (utterances(60), utterances(20, "stop")), manifest.before, strict=True
    )
    for (part, before, fingerprint), recorded in zip(parts, positions, strict=True):
        rest = part.take([i for i, utterance in enumerate(part) if utterance not in planted])
        assert rest.fingerprint() == before.fingerprint() == fingerprint
        for canary, indices in zip(manifest.canaries, recorded, strict=True):
            assert list(indices) == [i for i, row in enumerate(part) if row == canary.utterance]
    assert manifest.after == (train.fingerprint(), validation.fingerprint())


@pytest.mark.parametrize(
    ("copies", "train", "validation"),
    [(1, 1, 0), (9, 9, 0), (10, 9, 1), (19, 18, 1), (100, 90, 10), (500, 450, 50)],
)
def test_copies_are_split_nine_to_one(copies, train, validation):
    text, intent = paper_pattern("pin:4")
    canaries = secret_canaries(text, intent=intent, copies=copies, seed=0)
    _, _, manifest = plant_secrets(utterances(30), utterances(3, "stop"), canaries, seed=0)
    assert [len(indices) for indices in manifest.train_positions] == [train, 0]
    assert [len(indices) for indices in manifest.validation_positions] == [validation, 0]


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 9))
def test_copies_of_utterances_may_be_at_any_position(size, copies, seed):
    parts = utterances(size), utterances(size, "stop")
    train, validation, manifest = plant_secrets(*parts, secrets(copies), seed=seed)
    manifest.verify(train, validation)
    assert len(train) + len(validation) == 2 * size + 2 * copies + 1


@pytest.mark.slow
def test_positions_of_utterances_are_uniform_and_depend_on_the_seed(planted_utterances):
    again, other = (
        plant_secrets(utterances(60), utterances(20, "stop"), secrets(), seed=seed)[2]
        for seed in (5, 6)
    )
    assert again == planted_utterances[2]
    assert other.train_positions != again.train_positions
    canaries, parts = secrets(1)[:2], (utterances(9), utterances(1))
    planted = (plant_secrets(*parts, canaries, seed=seed)[2] for seed in range(400))
    check_uniform([manifest.train_positions[0][0] for manifest in planted])


def test_secrets_that_cannot_be_planted_are_refused():
    train, validation, manifest = plant_secrets(utterances(5), utterances(0), secrets(9), seed=0)
    assert len(validation) == 0  # fewer than ten copies are all in the training part
    manifest.verify(train, validation)
    with pytest.raises(DataError, match="validation part is empty; it needs 2 copies"):
        plant_secrets(utterances(5), utterances(0), secrets(10), seed=0)
    with pytest.raises(DataError, match="training part is empty"):
        plant_secrets(utterances(0), utterances(5), secrets(9), seed=0)
    canaries = secrets()
    wider = replace(canaries[4], candidates=(("name", ("ann", "bob", "cid", "dan", "eve")),))
    for invalid, message in (
        ([c for c in canaries if c.control], "must hold one with copies"),
        ([canaries[0], replace(canaries[0], copies=0)], "all different, got number 2"),
        ([canaries[5], wider], "one set for each name, got two called 'name'"),
    ):
        with pytest.raises(ValueError, match=message):
            plant_secrets(utterances(5), utterances(5), invalid, seed=0)


def upper_case(utterance, *suffix):
    """An utterance in capitals, with more words at its end."""
    words = (*(word.upper() for word in utterance.tokens), *suffix)
    return Utterances.of([Utterance(words, ("O",) * len(words), utterance.intent)])


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("number", [1, 2])
def test_an_utterance_that_the_corpus_contains_is_not_planted(part, number):
    canaries, parts = secrets(), [utterances(5), utterances(5, "stop")]
    parts[part] = parts[part] + upper_case(canaries[number - 1].utterance, "please")
    message = f"already contains the utterance of canary {number}"
    with pytest.raises(DataError, match=message) as caught:
        plant_secrets(*parts, canaries, seed=0)
    assert " ".join(canaries[number - 1].secret) not in str(caught.value)


def test_the_manifest_lists_everything_that_an_attack_needs(planted_utterances, tmp_path):
    planted_utterances[2].save(tmp_path / "manifest.json")
    loaded = SecretManifest.load(tmp_path / "manifest.json")
    assert [pattern.space for pattern in loaded.patterns] == [10**4, 12**3, 4]
    assert loaded.intents == ("PinIntent", "ColorIntent", "Wake")
    assert loaded.tags == ("O", "B-canary", "I-canary", "B-who")
    words = {word for canary in loaded.canaries for word in canary.utterance.tokens}
    assert words < set(loaded.words)  # words include unplanted candidates
    assert list(loaded.words) == sorted(set(loaded.words))
    assert len(loaded.words) == 4 + 10 + 1 + 12 + 2 + 4


def test_removed_moved_and_relabelled_copies_are_detected(planted_utterances):
    train, validation, manifest = planted_utterances
    position = manifest.train_positions[0][0]
    fewer = train.take([i for i in range(len(train)) if i != position])
    with pytest.raises(ManifestError, match=r"canary 1 .* 22 times in the training part, not 23"):
        manifest.verify(fewer, validation)
    order = np.arange(len(train))
    copies = {position for indices in manifest.train_positions for position in indices}
    other = next(i for i in range(len(train)) if i not in copies)
    order[[position, other]] = other, position
    with pytest.raises(ManifestError, match=r"canary 1 .* at its positions in the training part"):
        manifest.verify(train.take(order), validation)
    rows = list(validation)
    position = manifest.validation_positions[2][0]
    for change in ({"intent": "PlayMusic"}, {"tags": ("O",) * len(rows[position].tags)}):
        changed = rows[position]._replace(**change)
        relabelled = Utterances.of([*rows[:position], changed, *rows[position + 1 :]])
        with pytest.raises(ManifestError, match=r"canary 3 .* other words, tags or int") as caught:
            manifest.verify(train, relabelled)
        assert " ".join(manifest.canaries[2].secret) not in str(caught.value)


@pytest.mark.parametrize("part", [0, 1])
def test_a_control_in_the_corpus_is_detected(part, planted_utterances):
    manifest, parts = planted_utterances[2], list(planted_utterances[:2])
    parts[part] = parts[part] + upper_case(
        next(c for c in manifest.canaries if c.control).utterance
    )
    with pytest.raises(ManifestError, match="control 2 occurs 1 times"):
        manifest.verify(*parts)
