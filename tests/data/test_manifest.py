import json
from pathlib import Path
from typing import Any

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


@pytest.fixture
def sealed(planting: tuple[Corpus, Manifest], tmp_path: Path) -> Path:
    planting[1].save(tmp_path / "manifest.json")
    return tmp_path / "manifest.json"


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
    with pytest.raises(DataError, match="lacks word 2 of canary 1"):
        plant(corpus, [canary], seed=0, vocabulary=vocabulary)


def test_a_phrase_of_the_corpus_is_not_planted(planting: tuple[Corpus, Manifest]) -> None:
    planted, manifest = planting
    with pytest.raises(DataError, match="already contains"):
        plant(planted, manifest.canaries, seed=0)


def test_what_is_saved_is_what_is_loaded(sealed: Path, planting: tuple[Corpus, Manifest]) -> None:
    loaded = Manifest.load(sealed)
    assert loaded == planting[1]
    assert json.loads(sealed.read_text("utf-8"))["sha256"] == loaded.sha256


def test_the_seal_does_not_depend_on_layout(
    sealed: Path, planting: tuple[Corpus, Manifest]
) -> None:
    content = json.loads(sealed.read_text("utf-8"))
    sealed.write_text(json.dumps(dict(reversed(content.items()))))
    assert Manifest.load(sealed) == planting[1]


def test_an_untouched_planting_verifies(sealed: Path, planting: tuple[Corpus, Manifest]) -> None:
    Manifest.load(sealed).verify(planting[0])


def _change(path: Path, *keys: Any, value: Any) -> None:
    content = json.loads(path.read_text("utf-8"))
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("canaries", 1, "phrase"), "something else"),
        (("canaries", 0, "copies"), 8),
        (("canaries", 2, "frequencies", 0), 1),
        (("canaries", 3, "ids"), []),
        (("canaries", 0, "positions", 0), 0),
        (("seed",), 4),
        (("corpus",), "00"),
        (("sha256",), "00"),
    ],
)
def test_a_change_is_noticed(keys: tuple[Any, ...], value: Any, sealed: Path) -> None:
    _change(sealed, *keys, value=value)
    with pytest.raises(ManifestError, match="was changed after it was written") as caught:
        Manifest.load(sealed)
    assert str(sealed) in caught.value.problem
    assert "plant again" in caught.value.remedy


def test_a_canary_taken_out_is_noticed(sealed: Path) -> None:
    content = json.loads(sealed.read_text("utf-8"))
    del content["canaries"][0]
    sealed.write_text(json.dumps(content))
    with pytest.raises(ManifestError, match="was changed after it was written"):
        Manifest.load(sealed)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"format": "vestige-canaries-1"}',
        b'{"format": "vestige-canaries-1", "sha256": "", "canaries": 3}',
        b'{"format": "vestige-canaries-1", "sha256": "", "canaries": ["a"]}',
        b'{"format": "vestige-canaries-1", "sha256": "", "canaries": [{}]}',
        b'{"format": "vestige-canaries-9", "sha256": "", "canaries": []}',
    ],
)
def test_a_malformed_manifest_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(ManifestError, match=r"manifest\.json") as caught:
        Manifest.load(path)
    assert caught.value.remedy


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "none.json", "is missing"), (tmp_path, "a directory")):
        with pytest.raises(ManifestError, match=told):
            Manifest.load(path)


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
