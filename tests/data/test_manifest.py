import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary, Manifest, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ManifestError


@pytest.fixture(scope="module")
def canaries(corpus: Corpus, vocabulary: WordVocabulary) -> tuple[Canary, ...]:
    return frequency_canaries(corpus, vocabulary, copies=7, seed=0)


@pytest.fixture(scope="module")
def planting(
    corpus: Corpus, vocabulary: WordVocabulary, canaries: tuple[Canary, ...]
) -> tuple[Corpus, Manifest]:
    return plant(corpus, canaries, seed=3, vocabulary=vocabulary)


def test_planting_only_adds_the_copies(
    corpus: Corpus, planting: tuple[Corpus, Manifest], canaries: tuple[Canary, ...]
) -> None:
    planted, _ = planting
    phrases = {canary.phrase for canary in canaries}
    assert len(planted) == len(corpus) + 28
    rest = planted.take([i for i, text in enumerate(planted) if text not in phrases])
    assert rest.fingerprint() == corpus.fingerprint()


def test_a_canary_in_a_corpus_with_sources_answers_nothing(
    corpus: Corpus, canaries: tuple[Canary, ...]
) -> None:
    texts = list(corpus)
    planted, _ = plant(Corpus.from_texts(texts, sources=texts), canaries, seed=3)
    phrases = {canary.phrase for canary in canaries}
    assert planted.sources == ["" if text in phrases else text for text in planted]


def test_the_places_are_where_the_copies_stand(planting: tuple[Corpus, Manifest]) -> None:
    planted, manifest = planting
    texts = list(planted)
    for canary, places in zip(manifest.canaries, manifest.positions, strict=True):
        found = [i for i, text in enumerate(texts) if text == canary.phrase]
        assert list(places) == found
        assert len(places) == canary.copies


def test_the_manifest_records_ids_and_fingerprints(
    corpus: Corpus, vocabulary: WordVocabulary, planting: tuple[Corpus, Manifest]
) -> None:
    planted, manifest = planting
    assert manifest.corpus == corpus.fingerprint()
    assert manifest.planted == planted.fingerprint()
    assert manifest.vocabulary == vocabulary.fingerprint()
    for canary in manifest.canaries:
        assert vocabulary.decode(canary.ids) == canary.phrase


def test_the_seed_decides_the_places(corpus: Corpus, canaries: tuple[Canary, ...]) -> None:
    first = plant(corpus, canaries, seed=3)[1]
    assert plant(corpus, canaries, seed=3)[1] == first
    assert plant(corpus, canaries, seed=4)[1].positions != first.positions


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 6), st.integers(1, 5), st.integers(0, 9))
def test_copies_stand_anywhere_the_ends_included(size: int, copies: int, seed: int) -> None:
    corpus = Corpus.from_texts([f"text {i}" for i in range(size)])
    canary = Canary("a b", "given", (0, 0), copies)
    planted, manifest = plant(corpus, [canary], seed=seed)
    manifest.verify(planted)
    assert [text for text in planted if text != "a b"] == list(corpus)


def test_places_are_uniform() -> None:
    corpus = Corpus.from_texts(["x"] * 9)
    canary = Canary("a b", "given", (0, 0), 1)
    places = [plant(corpus, [canary], seed=seed)[1].positions[0][0] for seed in range(600)]
    counts = np.bincount(places, minlength=10)
    chi_square = float(((counts - 60) ** 2 / 60).sum())
    assert chi_square < 27.9  # 0.999 quantile at 9 degrees of freedom


def test_copies_belong_to_the_user_named(corpus: Corpus, canaries: tuple[Canary, ...]) -> None:
    planted, manifest = plant(corpus, canaries, seed=0, user="mallory")
    users = planted.users or []
    assert users.count("mallory") == 28
    assert all(users[place] == "mallory" for place in manifest.positions[0])


def test_nothing_to_plant_is_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="one with copies"):
        plant(corpus, [Canary("a b", "given", (0, 0), 0)], seed=0)
    with pytest.raises(ValueError, match="all different"):
        plant(corpus, [Canary("a b", "given", (0, 0), 1)] * 2, seed=0)


def test_a_canary_that_the_vocabulary_cannot_read_is_refused(
    corpus: Corpus, vocabulary: WordVocabulary
) -> None:
    canary = Canary(f"{vocabulary.words[2]} xyzzy", "given", (1, 0), 1)
    with pytest.raises(DataError, match=r"canary 1 has words .* lacks: 2 of 2"):
        plant(corpus, [canary], seed=0, vocabulary=vocabulary)


def test_a_phrase_of_the_corpus_is_not_planted(planting: tuple[Corpus, Manifest]) -> None:
    planted, manifest = planting
    with pytest.raises(DataError, match="already contains"):
        plant(planted, manifest.canaries, seed=0)


def test_a_copy_too_few_is_named(planting: tuple[Corpus, Manifest]) -> None:
    planted, manifest = planting
    place = manifest.positions[0][0]
    fewer = planted.take([i for i in range(len(planted)) if i != place])
    with pytest.raises(ManifestError, match="occurs 6 times in the corpus, not 7 times") as caught:
        manifest.verify(fewer)
    assert caught.value.problem.startswith("canary 1 ")
    assert manifest.canaries[0].phrase not in caught.value.problem


def test_a_copy_too_many_is_found_inside_a_document_too(
    planting: tuple[Corpus, Manifest],
) -> None:
    planted, manifest = planting
    more = Corpus.from_texts([f"He said: {manifest.canaries[1].phrase}!"], users=["x"])
    with pytest.raises(ManifestError, match="occurs 8 times"):
        manifest.verify(planted + more)


def test_a_planted_control_is_named(planting: tuple[Corpus, Manifest]) -> None:
    planted, manifest = planting
    number, control = next(
        (n, canary) for n, canary in enumerate(manifest.canaries, 1) if canary.control
    )
    with pytest.raises(ManifestError, match=f"control {number} occurs 1 times"):
        manifest.verify(planted + Corpus.from_texts([control.phrase], users=["x"]))


def test_copies_at_other_places_are_noticed(planting: tuple[Corpus, Manifest]) -> None:
    planted, manifest = planting
    with pytest.raises(ManifestError, match="are not at their positions"):
        manifest.verify(planted.take(np.arange(len(planted))[::-1]))


def test_a_shorter_corpus_with_all_copies_is_noticed() -> None:
    corpus = Corpus.from_texts(["x"] * 20)
    planted, manifest = plant(corpus, [Canary("a b", "given", (0, 0), 3)], seed=0)
    with pytest.raises(ManifestError, match="are not at their positions"):
        manifest.verify(Corpus.from_texts(["a b"] * 3))
    manifest.verify(planted)
