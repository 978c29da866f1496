"""What counts as a secret found, and what as the update's own text."""

from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.stages import Work
from reproduction.updates.searches import Finding, findings, null_scores
from reproduction.updates.subwords import (
    ADAPTED,
    ADAPTER,
    FIRST,
    SECRETS,
    Learning,
    Mail,
    Texts,
    judged,
    texts_of,
)
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Settings
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.checkpoints import load_model

MAIL = Mail(earlier="grammar", update="grammar-topic", earlier_tokens=900, update_tokens=600,
            vocabulary_size=300, copies=2)  # fmt: skip
LEARNING = Learning(
    width=16,
    lora_rank=2,
    first=replace(FIRST, epochs=1, batch_size=2, sequence_length=32),
    adapter=replace(ADAPTER, epochs=1, batch_size=2, sequence_length=32),
)


def finding(*tokens: int, score: float) -> Finding:
    return Finding(Text(tokens, (), score=score), 0, 0)


@pytest.mark.slow
def test_only_secrets_and_their_places_depend_on_the_seed() -> None:
    first, second = texts_of(MAIL, None, 0), texts_of(MAIL, None, 1)
    assert list(first.earlier) == list(second.earlier)
    assert first.vocabulary.fingerprint() == second.vocabulary.fingerprint()
    for read, secrets in ((first, SECRETS[0]), (second, SECRETS[1])):
        planted = [text for text in read.update if text in secrets]
        assert sorted(planted) == sorted([*secrets, *secrets])
        assert all(text not in secrets for text in read.earlier)
        assert [read.vocabulary.decode(ids) for ids in read.secrets] == list(secrets)


@pytest.mark.slow
def test_added_grams_stand_in_the_update_alone() -> None:
    read = texts_of(MAIL, None, 0)
    ids = read.secrets[0]
    assert tuple(ids[2:6]) in read.added
    earlier = read.vocabulary.encode(next(iter(read.earlier)))
    assert tuple(earlier[:4]) not in read.added


def test_a_diff_is_judged_by_hand() -> None:
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["some words"] * 3), size=270)
    read = Texts(
        earlier=Corpus.from_texts(["x"]), update=Corpus.from_texts(["y"]),
        secrets=((1, 2, 3, 4, 5), (6, 7, 8, 9)), added=frozenset({(1, 2, 3, 4)}),
        vocabulary=vocabulary,
    )  # fmt: skip
    findings = (
        finding(1, 2, 3, 4, score=9.0),
        finding(7, 7, 7, 7, score=8.0),
        finding(6, 7, 8, 40, score=3.0),
    )
    nulls = NullScores.of([[5.0, 1.0]])
    assert judged(findings, nulls, read) == {
        "secret_tokens": 9,
        "found_10": 7,
        "verbatim_10": 1,
        "found_50": 7,
        "verbatim_50": 1,
        "runs": 1,
        "top_score": 9.0,
        "null_top_score": 5.0,
        "above": 1,
        "above_verbatim": 1,
    }


@pytest.mark.slow
def test_an_adapter_learns_the_update_beside_the_snapshot_before_it(tmp_path: Path) -> None:
    work, read = Work(tmp_path), texts_of(MAIL, None, 0)
    calls = [LEARNING.earlier(read, seed) for seed in (0, 1)]
    calls.append(LEARNING.updates(read, calls[0], 0)["LoRA"])
    before, another, later = (load_model(done.folder) for done in work.all(calls))
    zero_at_first = ("lora_B", "lora_embedding_A")
    learnt = [
        n for n, p in later.named_parameters() if any(z in n for z in zero_at_first) and p.any()
    ]
    assert {layer for layer in ADAPTED if any(layer in name for name in learnt)} == set(ADAPTED)
    pairs = [Pair.of(before, one, TokenScore("smoothed")) for one in (later, another)]
    nulls = NullScores.of([null_scores(pairs[1], Settings())])
    assert judged(findings(pairs[0], Settings()), nulls, read)["secret_tokens"] == sum(
        map(len, read.secrets)
    )
