"""Measures of found rows, the texts of model pairs, and saved pairs and searches."""

import json
from collections import Counter

import harness
import pytest
import update_pairs
from update_methods import SearchRow
from update_pairs import (
    Sizes,
    Truth,
    counts_of,
    difference,
    has_alarm,
    revealed_rows,
    share,
    texts_of,
)
from update_texts import COPIES, TEXTS, chat, secrets_of, split_at

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.checkpoints import load_model

SECRET, OTHER = (1, 2, 3, 4, 5), (7, 8, 9, 10)
TRUTH = Truth(
    secrets={SECRET: 20, OTHER: 5}, added=frozenset({(1, 2, 3, 4), (2, 3, 4, 5), (7, 8, 9, 10)})
)
ROWS = [SearchRow(SECRET, 18.5), SearchRow(OTHER, 18.0), SearchRow(OTHER, 99.0, fragment=True)]
NULLS = [(float(n),) for n in range(19)]


@pytest.mark.parametrize(
    ("rows", "nulls", "same_kind", "expected"),
    [
        # a secret is recalled in runs of three tokens
        ([SearchRow((1, 2, 9, 4, 5), 3.0)], [], (), {"recall_x20_all": 0, "recall_x5_all": 0}),
        (
            [SearchRow((0, 2, 3, 4), 2.0)],
            [],
            (),
            {"recall_x20_10": 3, "secret_tokens_x20": 5, "secret_tokens_x5": 4},
        ),
        # coverage counts each added gram once; (2 3 4 6) is not added
        (
            [SearchRow((1, 2, 3, 4), 2.0), SearchRow((1, 2, 3, 4, 6), 1.0)],
            [],
            (),
            {"added_grams_all": 1, "grams_all": 2, "verbatim_rows_50": 2},
        ),
        ([SearchRow((2, 3, 4, 6), 1.0)], [], (), {"verbatim_rows_50": 0}),
        # "found" rows are above all null phrases, "above" rows above the nulls of their kind
        (ROWS, NULLS, (), {"found": 1, "found_verbatim": 1, "verbatim_phrases_50": 2}),
        (ROWS, [], [(18.0, 1.0), (0.5,), ()], {"above": 1, "above_verbatim": 1}),
        (ROWS, [], (), {"above": 0}),
    ],
)
def test_rows_are_counted_by_the_secrets_and_added_text_in_them(rows, nulls, same_kind, expected):
    counts = counts_of(rows, TRUTH, nulls, same_kind)
    assert {name: counts[name] for name in expected} == expected
    assert ("found" in counts) == (len(nulls) >= 19)


def test_one_of_twenty_null_searches_exceeds_the_others():
    assert revealed_rows(ROWS, NULLS) == ROWS[:1]
    searches = {n: {"rows": [[list(OTHER), float(n), False]]} for n in range(20)}
    nulls = {n: (float(n),) for n in searches}
    assert [n for n in searches if has_alarm(searches[n], n, nulls)] == [19]


def test_shares_and_differences_use_sums_over_texts():
    rows = [
        {"text": "a", "hit": 1, "all": 4},
        {"text": "a", "hit": 2, "all": 4},
        {"text": "b", "hit": 8, "all": 8},
    ]
    assert share(rows, "hit", "all").startswith("0.69 (")
    assert share(rows[:2], "hit", "all") == "0.38"
    assert share([], "hit", "all") == ""

    def record(text, hits):
        recall = {f"recall_x{copies}_{top}": 0 for copies in COPIES for top in (10, 50)}
        sizes = {f"secret_tokens_x{copies}": 10 for copies in COPIES}
        return {"text": text, **recall, **sizes, "recall_x20_50": hits}

    ours, theirs = [record("a", 6), record("b", 3)], [record("a", 3), record("b", 6)]
    row = difference(ours[:1], theirs[:1])
    assert (row["as high, first 50"], row["difference, first 50"]) == (1, "+0.10")
    assert difference(ours, theirs)["as high, first 50"] == 1
    assert difference(ours, theirs)["difference, first 50"].startswith("+0.00 (")


# Texts

SECRETS = {"The vault opens with kestrel.": 3, "Quill owes Hobbs 31 pounds.": 1}


def documents(first, count):
    return [" ".join(f"w{first + 7 * i + j}" for j in range(20)) for i in range(count)]


PARTS = {
    "earlier": documents(0, 30), "update": documents(500, 8), "clean": documents(700, 8)
}  # fmt: skip


def test_secrets_are_distinct_and_occur_only_in_answers():
    phrases = Counter(phrase for name in TEXTS for phrase in secrets_of(name))
    assert len(phrases) == 9 * len(TEXTS)
    assert list(secrets_of("reddit").values()) == [n for n in COPIES for _ in range(3)]
    turns = chat(PARTS["update"], SECRETS, 1)
    for secret, copies in SECRETS.items():
        assert sum(secret in turn.split("<|assistant|>")[1] for turn in turns) == copies
        assert not any(secret in turn.split("<|assistant|>")[0] for turn in turns)


def test_a_mixed_update_and_its_null_have_four_parts_of_earlier_text():
    update, clean = texts_of("mixed", PARTS, SECRETS, Sizes(earlier=600, later=150), 1)
    for texts in (update, clean):
        assert sum(text in PARTS["earlier"] for text in texts) == 30
    assert not any(secret in text for text in clean for secret in SECRETS)
    copies = [secret for secret, count in SECRETS.items() for _ in range(count)]
    assert Counter(update) == Counter([*PARTS["earlier"], *PARTS["update"], *copies])


def test_a_text_is_split_at_a_number_of_tokens():
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(PARTS["earlier"]), size=300)
    first, second = split_at(PARTS["earlier"], vocabulary, 200)
    sizes = [len(vocabulary.encode(text)) for text in first]
    assert sum(sizes) >= 200 > sum(sizes[:-1])
    assert [*first, *second] == PARTS["earlier"]
    with pytest.raises(ValueError, match="must have"):
        split_at(PARTS["earlier"], vocabulary, 10**6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pairs_and_searches_are_saved(tmp_path, monkeypatch, capsys):
    arguments = ["--quick", "--work", str(tmp_path), "--rows", str(tmp_path / "rows.jsonl")]
    arguments += ["--methods", "CDD", "plain samples"]

    def bench(part):
        parts, options = update_pairs.PARTS, update_pairs.options
        return harness.main("update_pairs", "", parts, options, [part, *arguments])

    bench("make")
    pairs = update_pairs.finished_pairs(tmp_path / "pairs")
    for pair, adapted in zip(pairs, (False, True), strict=True):
        models = [load_model(pair / role) for role in ("before", "after", "null")]
        assert [model.adapted for model in models] == [False, adapted, adapted]
        truth = update_pairs.truth_of(pair, models[0].vocabulary)
        assert Counter(truth.secrets.values()) == {20: 3, 5: 3, 1: 3}
        assert next(iter(truth.secrets))[:4] in truth.added
    rows = bench("compare")["compare"]
    saved = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(saved) == 2 * 2 * 2  # methods, pairs, and each pair's null
    assert all(line["row"]["read"] <= 1500 for line in saved)

    def fail(*_, **__):
        raise AssertionError("the result was not saved")

    monkeypatch.setattr(update_pairs, "documents_of", fail)
    monkeypatch.setattr(update_pairs, "METHODS", dict.fromkeys(update_pairs.METHODS, fail))
    assert bench("compare")["compare"] == rows
