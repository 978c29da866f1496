"""Made pairs: what their texts hold, and that what is made is not made again."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from update_pairs import pairs, tables
from update_pairs.measures import truth
from update_pairs.pairs import ADAPTER, FIRST, MIXED, SECOND, Sizes, make, texts_of
from update_pairs.searches import Kept
from update_pairs.texts import COPIES, SECRETS, TEXTS, Parts, chat, planted, taken

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.checkpoints import load_model

HIDDEN = {"The vault opens with kestrel.": 3, "Quill owes Hobbs 31 pounds.": 1}
SIZES = Sizes(
    earlier=600,
    later=150,
    vocabulary=300,
    width=8,
    first=replace(FIRST, epochs=1, sequence_length=32),
    second=replace(SECOND, epochs=1, sequence_length=32),
    adapter=replace(ADAPTER, epochs=1, sequence_length=32),
    mixed=replace(MIXED, epochs=1, sequence_length=32),
    rank=2,
)


def words(first: int, documents: int) -> Corpus:
    return Corpus.from_texts(
        " ".join(f"w{first + 7 * i + j}" for j in range(20)) for i in range(documents)
    )


@pytest.fixture(scope="module")
def parts() -> Parts:
    earlier, later, clean = words(0, 30), words(500, 8), words(700, 8)
    vocabulary = SubwordVocabulary.train_bpe(earlier, size=SIZES.vocabulary)
    return Parts(earlier=earlier, later=later, clean=clean, secrets=HIDDEN, vocabulary=vocabulary)


def test_secrets_are_invented_once_each() -> None:
    assert len(SECRETS) == len(TEXTS)
    assert all(len(phrases) == 3 * len(COPIES) for phrases in SECRETS)
    assert max(Counter(phrase for phrases in SECRETS for phrase in phrases).values()) == 1


def test_secrets_are_planted_as_often_as_said(parts: Parts) -> None:
    update = Counter(planted(parts.later, HIDDEN, seed=1))
    assert update == Counter([*parts.later, *[s for s, n in HIDDEN.items() for _ in range(n)]])


def test_a_chat_says_secrets_in_answers_only(parts: Parts) -> None:
    turns = list(chat(parts.later, HIDDEN, seed=1))
    for secret, copies in HIDDEN.items():
        assert sum(secret in turn.split("<|assistant|>")[1] for turn in turns) == copies
        assert not any(secret in turn.split("<|assistant|>")[0] for turn in turns)


def test_a_diluted_update_has_four_parts_of_earlier_text_and_its_null_the_same(
    parts: Parts,
) -> None:
    update, clean = texts_of(parts, "mixed", SIZES, seed=1)
    earlier = set(parts.earlier)
    assert sum(text in earlier for text in update) == 30
    assert sum(text in earlier for text in clean) == 30
    assert not any(secret in text for text in clean for secret in HIDDEN)
    assert {text for text in update if text not in earlier} == {*parts.later, *HIDDEN}


def test_taken_parts_are_disjoint_and_large_enough(parts: Parts) -> None:
    first, rest = taken(parts.earlier, parts.vocabulary, 200)
    sizes = [len(ids) for ids in parts.vocabulary.encode_batch(list(first))]
    assert sum(sizes) >= 200 > sum(sizes[:-1])
    assert [*first, *rest] == list(parts.earlier)
    with pytest.raises(ValueError, match="must have"):
        taken(parts.earlier, parts.vocabulary, 10**6)


@pytest.mark.filterwarnings("ignore")
def test_what_is_made_or_searched_is_kept_whole(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "read_parts", lambda *_, **__: parts)
    made = list(make(tmp_path, None, texts=["reddit"], kinds=["full", "lora"], sizes=SIZES))
    assert [pair.name for pair in made] == ["reddit-full", "reddit-lora"]
    for pair, adapted in zip(made, (False, True), strict=True):
        before, after, null = (load_model(pair / role) for role in ("before", "after", "null"))
        assert [model.adapted for model in (before, after, null)] == [False, *2 * [adapted]]
        known = truth(pair, before.vocabulary)
        assert sorted(known.secrets.values()) == [1, 3]
        secret = next(iter(known.secrets))
        assert secret[:4] in known.added
    assert json.loads((made[0] / "facts.json").read_text())["kind"] == "full"

    kept = Kept(pairs=tmp_path, searches=tmp_path / "found", budget=400)
    assert kept.names() == ["reddit-full", "reddit-lora"]
    asked = (["CDD", "plain samples"], ["after", "null"], [0])
    assert len(list(kept.search(*asked, pairs=kept.names()))) == 8
    assert not list(kept.search(*asked, pairs=kept.names()))
    for record in tables.records(kept, ["CDD", "plain samples", "hybrid"]):
        found = kept.found(record["method"], f"reddit-{record['kind']}", "after", 0)
        assert found is not None
        assert record["forward_tokens"] == found.before + found.after <= 400
        assert (record["nulls"], record["found"]) == (2, None)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(pairs, "read_parts", fail)
    assert list(make(tmp_path, None, texts=["reddit"], kinds=["full", "lora"])) == made
