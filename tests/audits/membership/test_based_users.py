"""An audit of users with the base that the target was fine-tuned from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from vestige import results
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

from .queried import users

SIZE, EACH = 80, 5
WORDS = tuple(f"w{n}" for n in range(SIZE))
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
LANGUAGE = np.random.default_rng(99).dirichlet(np.ones(SIZE), SIZE)


def of_users(count, seed, mark):
    """Walks over words by one chain, five of each user."""
    chance, texts = np.random.default_rng(seed), []
    for _ in range(count * EACH):
        walk = [int(chance.integers(SIZE))]
        while len(walk) < 15:
            walk.append(int(chance.choice(SIZE, p=LANGUAGE[walk[-1]])))
        texts.append(" ".join(WORDS[word] for word in walk))
    return Corpus.from_texts(texts, users=[f"{mark}{n // EACH}" for n in range(len(texts))])


def counted(*read):
    """A model of what follows a word, by counting; each corpus counts so many times."""
    counts = np.full((SIZE + 2, SIZE + 2), 0.05)
    for corpus, times in read:
        for ids in VOCABULARY.encode_batch(list(corpus)):
            for one, other in pairwise(ids):
                counts[one, other] += times
    table = counts / counts.sum(axis=1, keepdims=True)
    return TableModel(np.full(SIZE + 2, 1 / (SIZE + 2)), table, VOCABULARY)


PUBLIC, MEMBERS, OTHERS, REFERENCE = (
    of_users(count, seed, mark)
    for count, seed, mark in ((400, 1, "p"), (10, 2, "in"), (10, 3, "out"), (60, 4, "r"))
)
BASE = counted((PUBLIC, 1))
TUNED = counted((PUBLIC, 1), (MEMBERS, 5))
AUDITED = Corpus.from_texts([*MEMBERS, *OTHERS], users=[*MEMBERS.users, *OTHERS.users])


def audited(found):
    return [row for row in found.rows if row["kind"] == "audited"]


def p_values_of(found):
    return [row["p_value"] for row in audited(found)]


@pytest.mark.parametrize("top_k", [None, 20])
def test_members_are_found_beside_the_base_from_all_or_from_a_few_tokens(top_k):
    found = users(TUNED, AUDITED, reference=REFERENCE, base=BASE, top_k=top_k)
    p_values = {row["user"]: row["p_value"] for row in audited(found)}
    inside = [p for name, p in p_values.items() if name.startswith("in")]
    outside = [p for name, p in p_values.items() if name.startswith("out")]
    assert np.mean(inside) < 0.15 < 0.3 < np.mean(outside)
    assert found.summary["k"] == (top_k or SIZE + 2)


def test_a_target_that_never_saw_anybody_gives_even_p_values():
    values = []
    for seed in range(6):
        tuned = counted((PUBLIC, 1), (of_users(10, 50 + seed, "x"), 1))
        found = users(tuned, AUDITED, reference=REFERENCE, base=BASE, seed=seed)
        values += p_values_of(found)
    assert np.mean(np.array(values) <= 0.05) <= 0.1
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)


CLEAN = of_users(20, 5, "clean")


def failed(found):
    return {check.name for check in found.claim.checks if check.state == "failed"}


def test_a_leak_and_an_honest_list_are_told_apart_by_the_list_test():
    leak = users(TUNED, AUDITED, reference=REFERENCE, base=BASE)
    assert leak.verdict == LEAK
    assert leak.summary["list_p_value"] < 0.001
    clean = users(TUNED, CLEAN, reference=REFERENCE, base=BASE)
    assert clean.verdict == NO_LEAK
    assert clean.summary["claim"]["verb"] == "membership --base"
    assert not any(row["called"] for row in audited(clean))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (BASE, "different"),
        (TableModel(np.full(SIZE + 2, 1 / (SIZE + 2)), np.full((SIZE + 2,) * 2, 1 / (SIZE + 2)),
                    VOCABULARY), "alive"),
    ],
)  # fmt: skip
def test_a_model_that_learnt_nothing_is_undecided(model, reason):
    found = users(model, CLEAN, reference=REFERENCE, base=BASE)
    assert (found.verdict, failed(found)) == (UNDECIDED, {reason})


def test_users_whose_texts_are_near_duplicates_of_three_are_undecided():
    chance, owners = np.random.default_rng(8), [f"u{n // 5}" for n in range(45)]
    copies = [text.split() for text in list(MEMBERS)[:3] for _ in range(15)]
    for words in copies:
        words[-1] = WORDS[int(chance.integers(SIZE))]
    texts = Corpus.from_texts([" ".join(words) for words in copies], users=owners)
    found = users(TUNED, texts, reference=REFERENCE, base=BASE)
    assert (found.verdict, len(audited(found))) == (UNDECIDED, 3)
    assert "independent" in failed(found)


def test_a_greeting_that_all_users_share_joins_nobody():
    greeting = " ".join(WORDS[:12])
    texts, reference = (
        side + Corpus.from_texts([greeting] * len(names), users=names)
        for side in (CLEAN, REFERENCE)
        for names in [sorted(set(side.users))]
    )
    found = users(TUNED, texts, reference=reference, base=BASE)
    assert (found.verdict, len(audited(found))) == (NO_LEAK, 20)
    assert found.summary["calibrated_on"] == 60


def test_words_that_the_model_does_not_know_and_another_kind_of_text_are_undecided():
    unknown = Corpus.from_texts(
        [f"{text} " + " ".join(f"new{n}{place}" for place in range(5)) for n, text in
         enumerate(CLEAN)], users=CLEAN.users,
    )  # fmt: skip
    assert "read" in failed(users(TUNED, unknown, reference=REFERENCE, base=BASE))
    halves = [" ".join(word for word in text.split() if int(word[1:]) < 40) for text in CLEAN]
    other = users(
        TUNED, Corpus.from_texts(halves, users=CLEAN.users), reference=REFERENCE, base=BASE
    )
    assert other.verdict == UNDECIDED
    assert "comparable" in failed(other)


def test_rounding_of_log_probabilities_moves_no_p_value(monkeypatch):
    plain = users(TUNED, AUDITED, reference=REFERENCE, base=BASE)
    ask, chance = statistics_module.token_statistics, np.random.default_rng(0)

    def disturbed(*given, **more):
        found = ask(*given, **more)
        names = ("log_probs", "means", "deviations")
        columns = {name: getattr(found, name) for name in names}
        return replace(found, **{
            name: (one * (1 + 1e-7 * chance.standard_normal(one.shape))).astype(np.float32)
            for name, one in columns.items()
        })  # fmt: skip

    monkeypatch.setattr(statistics_module, "token_statistics", disturbed)
    again = users(TUNED, AUDITED, reference=REFERENCE, base=BASE)
    assert p_values_of(again) == p_values_of(plain)
    assert again.summary["list_p_value"] == pytest.approx(plain.summary["list_p_value"], abs=0.001)


def test_it_resumes_and_reads_nothing_twice(tmp_path, monkeypatch):
    for name, model in (("tuned", TUNED), ("base", BASE)):
        save_model(model, tmp_path / name)
    given = {"reference": REFERENCE, "base": tmp_path / "base", "out": tmp_path / "out"}
    ask, calls = statistics_module.token_statistics, []

    def killed(*given, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ask(*given, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", killed)
    with pytest.raises(KeyboardInterrupt):
        users(tmp_path / "tuned", AUDITED, **given)
    found = users(tmp_path / "tuned", AUDITED, **given)
    assert found.summary == users(TUNED, AUDITED, **{**given, "base": BASE, "out": None}).summary
    assert len(calls) == 3 + 2  # two without the cache
    run = results.load(tmp_path / "out")
    assert set(run.run["models"]) == {"target", "base"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"calls": 5}, "`calls` does not go with `base`"),
        ({"epochs": 3}, "`epochs` does not go with `base`"),
        ({"top_k": 1000}, r"`top_k` must lie in \[1, 82\]"),
        ({"select": "informative", "queries": 3}, "`select` informative"),
    ],
)
def test_settings_that_a_base_has_no_use_for_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        users(TUNED, AUDITED, reference=REFERENCE, base=BASE, **given)


def test_a_remote_model_has_no_base():
    with pytest.raises(ValueError, match="`base` needs a local model"):
        users(lambda asked: [], AUDITED, reference=REFERENCE, base=BASE, top_k=3)
