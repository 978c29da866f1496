"""`membership` of users in Python: with a base and without, whole and resumed, and refused."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import users
from tests.audits.told import Told
from tests.models.narrowed import narrow
from vestige import results
from vestige.audits.membership import ranked_users
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError, RunError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel
from vestige.store import KEPT

# With the base that the target was fine-tuned from: models of what follows a word, by counting.

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
    """Each corpus counts so many times."""
    counts = np.full((SIZE + 2, SIZE + 2), 0.05)
    for corpus, times in read:
        for ids in VOCABULARY.encode_batch(list(corpus)):
            for one, other in pairwise(ids):
                counts[one, other] += times
    table = counts / counts.sum(axis=1, keepdims=True)
    return TableModel(np.full(SIZE + 2, 1 / (SIZE + 2)), table, VOCABULARY)


PUBLIC, INSIDE, OUTSIDE, REFERENCE, CLEAN = (
    of_users(count, seed, mark)
    for count, seed, mark in (
        (400, 1, "p"), (10, 2, "in"), (10, 3, "out"), (60, 4, "r"), (20, 5, "clean"),
    )
)  # fmt: skip
BASE = counted((PUBLIC, 1))
TUNED = counted((PUBLIC, 1), (INSIDE, 5))
BOTH = INSIDE + OUTSIDE
FLAT = np.full((SIZE + 2, SIZE + 2), 1 / (SIZE + 2))


def based(model=TUNED, texts=BOTH, **given):
    return users(model, texts, **{"reference": REFERENCE, "base": BASE, **given})


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 20])
def test_members_are_found_beside_the_base_from_all_or_from_a_few_tokens(top_k):
    found = based(top_k=top_k)
    p_values = dict(zip(audited(found, "user"), audited(found), strict=True))
    inside, outside = (
        np.mean([p for name, p in p_values.items() if name.startswith(mark)])
        for mark in ("in", "out")
    )
    assert inside < 0.15 < 0.3 < outside
    assert found.summary["k"] == (top_k or SIZE + 2)


@pytest.mark.slow
def test_a_target_that_never_saw_anybody_gives_even_p_values():
    values = []
    for seed in range(6):
        tuned = counted((PUBLIC, 1), (of_users(10, 50 + seed, "x"), 1))
        values += audited(based(tuned, seed=seed)).tolist()
    assert np.mean(np.array(values) <= 0.05) <= 0.1
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_a_leak_and_an_honest_list_are_told_apart_by_the_list_test():
    leak, clean = based(texts=INSIDE), based(texts=CLEAN)
    assert (leak.verdict, clean.verdict) == (LEAK, NO_LEAK)
    assert leak.summary["list_p_value"] < 0.001
    assert clean.summary["claim"]["verb"] == "membership --base"
    assert not audited(clean, "called").any()


def shifted(texts):
    """The same with five words in each that the model does not know."""
    rows = [f"{text} " + " ".join(f"n{n}{at}" for at in range(5)) for n, text in enumerate(texts)]
    return Corpus.from_texts(rows, users=texts.users)


def near_copies():
    """Texts of 45 users that are three with other last words."""
    chance, owners = np.random.default_rng(8), [f"u{n // 5}" for n in range(45)]
    starts = [text.rpartition(" ")[0] for text in list(INSIDE)[:3] for _ in range(15)]
    texts = [f"{start} {WORDS[int(chance.integers(SIZE))]}" for start in starts]
    return Corpus.from_texts(texts, users=owners)


def half_of_the_words(texts):
    halves = [" ".join(word for word in text.split() if int(word[1:]) < 40) for text in texts]
    return Corpus.from_texts(halves, users=texts.users)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "texts", "reason"),
    [
        (BASE, CLEAN, "different"),
        (TableModel(FLAT[0], FLAT, VOCABULARY), CLEAN, "alive"),
        (TUNED, near_copies(), "independent"),
        (TUNED, shifted(CLEAN), "read"),
        (TUNED, half_of_the_words(CLEAN), "comparable"),
    ],
)
def test_a_condition_that_does_not_hold_leaves_it_undecided(model, texts, reason):
    found = based(model, texts)
    assert (found.verdict, reason in failed(found)) == (UNDECIDED, True)


def test_a_greeting_that_all_users_share_joins_nobody():
    greeting = " ".join(WORDS[:12])
    texts, reference = (
        side + Corpus.from_texts([greeting] * len(names), users=names)
        for side in (CLEAN, REFERENCE)
        for names in [sorted(set(side.users))]
    )
    found = based(texts=texts, reference=reference)
    assert (found.verdict, audited(found).size) == (NO_LEAK, 20)
    assert found.summary["calibrated_on"] == 60


@pytest.mark.slow
def test_rounding_of_log_probabilities_moves_no_p_value(monkeypatch):
    plain = based()
    ask, chance = statistics_module.token_statistics, np.random.default_rng(0)

    def disturbed(*given, **more):
        found = ask(*given, **more)
        columns = {n: getattr(found, n) for n in ("log_probs", "means", "deviations")}
        return replace(found, **{
            name: (one * (1 + 1e-7 * chance.standard_normal(one.shape))).astype(np.float32)
            for name, one in columns.items()
        })  # fmt: skip

    monkeypatch.setattr(statistics_module, "token_statistics", disturbed)
    again = based()
    assert audited(again).tolist() == audited(plain).tolist()
    assert again.summary["list_p_value"] == pytest.approx(plain.summary["list_p_value"], abs=0.001)


@pytest.mark.slow
def test_with_a_base_it_resumes_and_reads_nothing_twice(tmp_path, monkeypatch):
    plain = based()
    for name, model in (("tuned", TUNED), ("base", BASE)):
        save_model(model, tmp_path / name)
    ask, calls = statistics_module.token_statistics, []

    def killed(*given, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ask(*given, **more)

    monkeypatch.setattr(statistics_module, "token_statistics", killed)
    given = {"base": tmp_path / "base", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        based(tmp_path / "tuned", **given)
    assert based(tmp_path / "tuned", **given).summary == plain.summary
    assert len(calls) == 3
    assert set(results.load(tmp_path / "out").run["models"]) == {"target", "base"}


# Without a base: a small untrained model, its ranks, and what stays of unfinished work.

FEW = tuple(f"w{n}" for n in range(20))
TINY = {"shadows": 2, "epochs": 1, "hidden_size": 4}


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(4)]
    return Corpus.from_texts([" ".join(chance.choice(FEW, 8)) for _ in owners], users=owners)


MINE = texts_of(["me", "you"], seed=1)
OTHERS = texts_of([f"person {n:02}" for n in range(40)], seed=2)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *FEW)), config).eval()


def audit(model, texts=MINE, **named):
    return users(model, texts, **{"reference": OTHERS, "shadows": 0, **named})


class Stop(Told):
    """A monitor that interrupts at the first line that contains some text, as Ctrl-C does."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def log(self, text):
        super().log(text)
        if self.at in text:
            raise KeyboardInterrupt


def interrupted(model, out, **named):
    """The notes of the interruption."""
    with pytest.raises(KeyboardInterrupt) as caught:
        audit(model, out=out, **named)
    return getattr(caught.value, "__notes__", [])


def test_paths_and_objects_give_the_same_audit_and_nothing_is_left(model, tmp_path, monkeypatch):
    save_model(model, tmp_path / "model")
    for name, corpus in (("mine", MINE), ("others", OTHERS)):
        rows = [{"text": t, "who": u} for t, u in zip(corpus, corpus.users, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    loaded = audit(model)
    files = {"reference": tmp_path / "others.jsonl", "user": "who", "device": "cpu"}
    paths = audit(str(tmp_path / "model"), tmp_path / "mine.jsonl", **files)
    assert loaded.rows == paths.rows
    assert loaded.record["arguments"]["model"] == "<LSTMLanguageModel>"
    assert paths.record["models"]["target"]["sha256"]
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert audit(model).rows == paths.rows
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_is_there_already_is_refused_and_left_alone(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    audit(model, out=tmp_path / "finished")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for name in ("file", "finished"):
        with pytest.raises(RunError, match=f"{name} exists already"):
            audit(model, out=tmp_path / name)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_ranks_are_kept_computed_once_and_no_other_audits(model, tmp_path):
    assert interrupted(model, tmp_path / "out", monitor=Stop("Comparing")) == [KEPT]
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    with pytest.raises(RunError, match=r"other settings: alpha 0\.05 and not 0\.2"):
        audit(model, out=tmp_path / "out", alpha=0.2)
    with pytest.raises(RunError, match="other settings: texts"):
        audit(model, texts_of(["you"], seed=3), out=tmp_path / "out")
    log = Told()
    found = audit(model, out=tmp_path / "out", monitor=log)
    assert "reading the texts" not in log.tasks
    assert found.rows == audit(model).rows
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_an_audit_without_finished_work_leaves_nothing(model, tmp_path, monkeypatch):
    def killed(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(ranked_users, "ranks_of", killed)
    assert interrupted(model, tmp_path / "out") == []
    assert list(tmp_path.iterdir()) == []


def test_shadow_models_are_kept_and_the_interruption_says_so(model, tmp_path):
    stop = Stop("trained shadow")
    options = {**TINY, "select": "informative", "calls": 24}  # shadow models come first
    assert interrupted(model, tmp_path / "out", monitor=stop, **options) == [KEPT]
    assert {path.name for path in tmp_path.iterdir()} == {"out.partial", "out.shadows"}
    log = Told()
    audit(model, out=tmp_path / "out", monitor=log, **options)
    assert sum("trained shadow" in line for line in log.lines) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.shadows"}


def ask_nothing(contexts):
    return []


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"queries": 1, "calls": 2}, "`calls` must be left out with `queries`"),
        ({"select": "rare"}, "`select` rare must come with `queries` or `calls`"),
        ({"select": "informative", "calls": 3}, "needs shadow models"),
        ({"alpha": 1.0}, "`alpha` must be less than 1"),
        ({"top_k": 99}, "`top_k` must lie in"),
        ({"person": " "}, "`person` must be a name"),
        ({"shadows": 1}, "`shadows` must be 0, 2 or more"),
        ({"shadows": 2, "other_shapes": True, "hidden_size": 3},
         "`hidden_size` does not go with `other_shapes`"),
        ({"processes": 2, "cluster": "auto"}, "`processes` does not go with `cluster`"),
        ({"reference": OTHERS + MINE}, "2 users are in both `texts` and `reference`"),
        *(({name: value}, f"`{name}` needs a remote model") for name, value in {
            "budget": 7, "timeout": 7.0, "attempts": 7, "task": "dialogue",
            "vocabulary_size": 7, "tokenizer": "words"}.items()),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_named_as_parameters(model, named, message):
    with pytest.raises((ValueError, DataError), match=message):
        audit(model, **named)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"calls": 5}, "`calls` does not go with `base`"),
        ({"epochs": 3}, "`epochs` does not go with `base`"),
        ({"top_k": 1000}, r"`top_k` must lie in \[1, 82\]"),
        ({"select": "informative", "queries": 3}, "`select` informative"),
        ({"model": ask_nothing, "top_k": 3}, "`base` needs a local model"),
    ],
)
def test_settings_that_a_base_has_no_use_for_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        based(**given)


def test_what_is_no_model_and_a_function_that_shows_nothing_are_refused(model):
    with pytest.raises(ModelError, match="neither a model nor a function"):
        audit(3)
    with pytest.raises(ValueError, match="`top_k` must be given for a remote model"):
        audit(ask_nothing)
    with pytest.raises(ValueError, match="`token_budget` needs a server"):
        audit(narrow(model, k=3), token_budget=9)
