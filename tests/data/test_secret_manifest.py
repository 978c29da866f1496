from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data.canaries.patterns import paper_pattern
from vestige.data.canaries.utterances import (
    SecretCanary,
    SecretManifest,
    plant_secrets,
    secret_canaries,
)
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError, ManifestError


def some(number: int, word: str = "play") -> Utterances:
    return Utterances.of(
        Utterance((word, f"song{i}"), ("O", "B-song"), "PlayMusic") for i in range(number)
    )


def canaries(copies: int = 25, **options: Any) -> tuple[SecretCanary, ...]:
    made = []
    for shorthand in ("pin:4", "color:3"):
        text, intent = paper_pattern(shorthand)
        made += secret_canaries(text, intent=intent, copies=copies, seed=0, **options)
    names = {"name": ("ann", "bob", "cid", "dan")}
    made += secret_canaries(
        "wake {name} now", intent="Wake", slot="who", candidates=names, copies=1, seed=0
    )
    return tuple(made)


Planting = tuple[Utterances, Utterances, SecretManifest]


@pytest.fixture(scope="module")
def planting() -> Planting:
    return plant_secrets(some(60), some(20, "stop"), canaries(), seed=5)


@pytest.fixture
def sealed(planting: Planting, tmp_path: Path) -> Path:
    planting[2].save(tmp_path / "manifest.json")
    return tmp_path / "manifest.json"


def test_planting_only_adds_the_copies(planting: Planting) -> None:
    train, validation, manifest = planting
    own = {canary.utterance for canary in manifest.canaries}
    for part, before, fingerprint in zip(
        (train, validation), (some(60), some(20, "stop")), manifest.before, strict=True
    ):
        rest = part.take([i for i, said in enumerate(part) if said not in own])
        assert rest.fingerprint() == before.fingerprint() == fingerprint
    assert manifest.after == (train.fingerprint(), validation.fingerprint())


def test_the_places_are_where_the_copies_stand(planting: Planting) -> None:
    train, validation, manifest = planting
    for part, positions in (
        (list(train), manifest.train_positions),
        (list(validation), manifest.validation_positions),
    ):
        for canary, places in zip(manifest.canaries, positions, strict=True):
            found = [i for i, said in enumerate(part) if said == canary.utterance]
            assert list(places) == found


@pytest.mark.parametrize(
    ("copies", "train", "validation"),
    [(1, 1, 0), (9, 9, 0), (10, 9, 1), (19, 18, 1), (100, 90, 10), (500, 450, 50)],
)
def test_copies_are_split_nine_to_one(copies: int, train: int, validation: int) -> None:
    text, intent = paper_pattern("pin:4")
    made = secret_canaries(text, intent=intent, copies=copies, seed=0)
    _, _, manifest = plant_secrets(some(30), some(3, "stop"), made, seed=0)
    assert [len(places) for places in manifest.train_positions] == [train, 0]
    assert [len(places) for places in manifest.validation_positions] == [validation, 0]


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 9))
def test_copies_stand_anywhere_the_ends_included(size: int, copies: int, seed: int) -> None:
    train, validation, manifest = plant_secrets(
        some(size), some(size, "stop"), canaries(copies), seed=seed
    )
    manifest.verify(train, validation)
    assert len(train) + len(validation) == 2 * size + 2 * copies + 1


def test_places_are_uniform() -> None:
    made = canaries(1)
    counts = np.zeros(12)
    for seed in range(600):
        counts[plant_secrets(some(9), some(1), made, seed=seed)[2].train_positions[0][0]] += 1
    chi_square = float(((counts - 50) ** 2 / 50).sum())
    assert chi_square < 31.3  # 0.999 quantile at 11 degrees of freedom


def test_the_seed_decides_the_places(planting: Planting) -> None:
    again = plant_secrets(some(60), some(20, "stop"), canaries(), seed=5)
    other = plant_secrets(some(60), some(20, "stop"), canaries(), seed=6)
    assert again[2] == planting[2]
    assert other[2].train_positions != planting[2].train_positions


def test_no_validation_is_needed_for_canaries_said_fewer_than_ten_times() -> None:
    train, validation, manifest = plant_secrets(some(5), some(0), canaries(9), seed=0)
    assert len(validation) == 0
    manifest.verify(train, validation)
    with pytest.raises(DataError, match="validation part is empty; it needs 2 copies"):
        plant_secrets(some(5), some(0), canaries(10), seed=0)
    with pytest.raises(DataError, match="training part is empty"):
        plant_secrets(some(0), some(5), canaries(9), seed=0)


def test_nothing_to_plant_and_utterances_twice_are_refused() -> None:
    made = canaries()
    with pytest.raises(ValueError, match="must hold one with copies"):
        plant_secrets(some(5), some(5), [c for c in made if c.control], seed=0)
    with pytest.raises(ValueError, match="all different, got number 2 a second time"):
        plant_secrets(some(5), some(5), [made[0], replace(made[0], copies=0)], seed=0)


def test_one_name_for_two_sets_is_refused() -> None:
    made = canaries()
    other = replace(made[4], candidates=(("name", ("ann", "bob", "cid", "dan", "eve")),))
    with pytest.raises(ValueError, match="one set for each name, got two called 'name'"):
        plant_secrets(some(5), some(5), [made[5], other], seed=0)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("number", [1, 2])
def test_an_utterance_of_the_corpus_is_not_planted(part: int, number: int) -> None:
    made = canaries()
    words, tags, intent = made[number - 1].utterance
    loud = Utterance(
        (*(word.upper() for word in words), "please"), (*("O" for _ in tags), "O"), intent
    )
    parts = [some(5), some(5, "stop")]
    parts[part] = parts[part] + Utterances.of([loud])
    with pytest.raises(
        DataError, match=f"already contains the utterance of canary {number}"
    ) as fault:
        plant_secrets(parts[0], parts[1], made, seed=0)
    assert " ".join(made[number - 1].secret) not in str(fault.value)


def test_the_record_alone_says_all_that_an_attack_must_know(sealed: Path) -> None:
    loaded = SecretManifest.load(sealed)
    assert [pattern.space for pattern in loaded.patterns] == [10**4, 12**3, 4]
    assert loaded.intents == ("PinIntent", "ColorIntent", "Wake")
    assert loaded.tags == ("O", "B-canary", "I-canary", "B-who")
    words = "my pin code is color wake now 0 9 red mauve ann dan".split()  # noqa: SIM905
    assert set(words) <= set(loaded.words)
    assert list(loaded.words) == sorted(set(loaded.words))
    assert len(loaded.words) == 4 + 10 + 1 + 12 + 2 + 4


def test_candidates_that_were_not_planted_are_words_too(planting: Planting) -> None:
    said = {word for canary in planting[2].canaries for word in canary.utterance.tokens}
    assert said < set(planting[2].words)


def test_a_copy_gone_moved_or_labelled_otherwise_is_named(planting: Planting) -> None:
    train, validation, manifest = planting
    place = manifest.train_positions[0][0]
    fewer = train.take([i for i in range(len(train)) if i != place])
    with pytest.raises(ManifestError, match=r"canary 1 .* 22 times in the training part, not 23"):
        manifest.verify(fewer, validation)

    order = np.arange(len(train))
    own = {place for places in manifest.train_positions for place in places}
    free = next(i for i in range(len(train)) if i not in own)
    order[[place, free]] = free, place
    with pytest.raises(ManifestError, match=r"canary 1 .* at its positions in the training part"):
        manifest.verify(train.take(order), validation)

    rows = list(validation)
    place = manifest.validation_positions[2][0]
    for changed in (
        rows[place]._replace(intent="PlayMusic"),
        rows[place]._replace(tags=("O",) * len(rows[place].tags)),
    ):
        others = Utterances.of([*rows[:place], changed, *rows[place + 1 :]])
        with pytest.raises(
            ManifestError, match=r"canary 3 .* other words, tags or intent"
        ) as fault:
            manifest.verify(train, others)
        assert " ".join(manifest.canaries[2].secret) not in str(fault.value)


@pytest.mark.parametrize("part", [0, 1])
def test_a_control_that_stands_there_is_named(part: int, planting: Planting) -> None:
    manifest = planting[2]
    control = next(canary for canary in manifest.canaries if canary.control)
    loud = control.utterance._replace(tokens=tuple(w.upper() for w in control.utterance.tokens))
    parts = list(planting[:2])
    parts[part] = parts[part] + Utterances.of([loud])
    with pytest.raises(ManifestError, match="control 2 occurs 1 times"):
        manifest.verify(parts[0], parts[1])
