"""An audit of users beside the base that the target was fine-tuned from."""

from itertools import pairwise

import numpy as np
import pytest

from vestige import results
from vestige.attacks.texts import token_statistics as statistics_module
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel
from vestige.workflows.audit_options import ShadowSettings
from vestige.workflows.audit_users import audit_users

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
    for count, seed, mark in ((40, 1, "p"), (10, 2, "in"), (10, 3, "out"), (60, 4, "r"))
)
BASE = counted((PUBLIC, 1))
TUNED = counted((PUBLIC, 1), (MEMBERS, 1))
AUDITED = Corpus.from_texts([*MEMBERS, *OTHERS], users=[*MEMBERS.users, *OTHERS.users])


@pytest.mark.parametrize("top_k", [None, 20])
def test_members_are_found_beside_the_base_from_all_or_from_a_few_tokens(top_k):
    found = audit_users(TUNED, AUDITED, reference=REFERENCE, base=BASE, top_k=top_k)
    p_values = {user.name: user.p_value for user in found.users}
    inside = [p for name, p in p_values.items() if name.startswith("in")]
    outside = [p for name, p in p_values.items() if name.startswith("out")]
    assert np.mean(inside) < 0.15 < 0.3 < np.mean(outside)
    assert found.summary()["k"] == (top_k or SIZE + 2)


def test_a_target_that_never_saw_anybody_gives_even_p_values():
    values = []
    for seed in range(6):
        tuned = counted((PUBLIC, 1), (of_users(10, 50 + seed, "x"), 1))
        found = audit_users(tuned, AUDITED, reference=REFERENCE, base=BASE, seed=seed)
        values += [user.p_value for user in found.users]
    assert np.mean(np.array(values) <= 0.05) <= 0.1
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)


def test_it_goes_on_and_asks_nothing_twice(tmp_path, monkeypatch):
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
        audit_users(tmp_path / "tuned", AUDITED, **given)
    found = audit_users(tmp_path / "tuned", AUDITED, **given)
    asked = len(calls)
    assert audit_users(tmp_path / "tuned", AUDITED, **given).summary() == found.summary()
    assert len(calls) == asked == 3
    run = results.load(tmp_path / "out" / "run")
    assert set(run.run["models"]) == {"target", "base"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"calls": 5}, "`calls` must be left out with `base`"),
        ({"shadow_models": ShadowSettings(epochs=3)}, "`epochs` must be left out with `base`"),
        ({"top_k": 1000}, r"`top_k` must lie in \[1, 82\]"),
        ({"select": "informative", "queries": 3}, "`select` informative"),
    ],
)
def test_settings_that_a_base_has_no_use_for_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        audit_users(TUNED, AUDITED, reference=REFERENCE, base=BASE, **given)


def test_a_service_is_asked_without_a_base():
    with pytest.raises(ValueError, match="`base` must be left out for a service"):
        audit_users(lambda asked: [], AUDITED, reference=REFERENCE, base=BASE, top_k=3)
