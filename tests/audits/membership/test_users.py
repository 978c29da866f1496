"""`membership` of users in Python: with a base, by ranks alone, interrupted and resumed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.audits.chains import Chain
from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import texts_of, untrained_lstm, users
from tests.monitors import RecordingMonitor
from vestige import results
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.errors import RunError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.store import KEPT

# Compared with the base of a fine-tune.

CHAIN = Chain(80, 1.0)


def users_named(prefix, count, seed):
    """Five texts of 15 words of each user."""
    texts = CHAIN.texts([15] * count * 5, np.random.default_rng(seed))
    return Corpus.from_texts(texts, users=[f"{prefix}{n // 5}" for n in range(len(texts))])


PUBLIC, MEMBERS, OTHERS = (
    users_named("p", 400, 1),
    users_named("in", 10, 2),
    users_named("out", 10, 3),
)
REFERENCE, CLEAN = users_named("r", 60, 4), users_named("clean", 20, 5)
BASE, TUNED = CHAIN.counted((PUBLIC, 1)), CHAIN.counted((PUBLIC, 1), (MEMBERS, 5))


def audit_tuned(model=TUNED, texts=MEMBERS + OTHERS, **options):
    return users(model, texts, **{"reference": REFERENCE, "base": BASE, **options})


@pytest.fixture(scope="module")
def uninterrupted():
    return audit_tuned()


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 20])
def test_members_have_small_p_values_for_all_or_a_few_tokens(top_k):
    result = audit_tuned(top_k=top_k)
    p_values = dict(zip(audited(result, "user"), audited(result), strict=True))
    members, others = (
        np.mean([p for name, p in p_values.items() if name.startswith(prefix)])
        for prefix in ("in", "out")
    )
    assert members < 0.15 < 0.3 < others
    assert result.summary["k"] == (top_k or len(CHAIN.vocabulary))


@pytest.mark.slow
def test_p_values_of_non_members_are_uniform():
    p_values = []
    for seed in range(6):
        tuned = CHAIN.counted((PUBLIC, 1), (users_named("x", 10, 50 + seed), 1))
        p_values += audited(audit_tuned(tuned, seed=seed)).tolist()
    assert np.mean(np.array(p_values) <= 0.05) <= 0.1
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_members_are_a_leak_and_non_members_with_a_shared_greeting_are_not():
    leak = audit_tuned(texts=MEMBERS)
    assert leak.verdict == LEAK
    assert leak.summary["list_p_value"] < 0.001

    def greeting(texts):
        names = sorted(set(texts.users))
        return texts + Corpus.from_texts([" ".join(CHAIN.words[:12])] * len(names), users=names)

    clean = audit_tuned(texts=greeting(CLEAN), reference=greeting(REFERENCE))
    assert (clean.verdict, audited(clean).size) == (NO_LEAK, 20)
    assert clean.summary["claim"]["verb"] == "membership --base"
    assert clean.summary["calibrated_on"] == 60
    assert not audited(clean, "called").any()


def near_copies():
    """Texts of nine users: three texts with different last words."""
    rng = np.random.default_rng(8)
    starts = [text.rpartition(" ")[0] for text in list(MEMBERS)[:3] for _ in range(15)]
    texts = [f"{start} {CHAIN.words[int(rng.integers(80))]}" for start in starts]
    return Corpus.from_texts(texts, users=[f"u{n // 5}" for n in range(45)])


def half_unknown():
    rows = [f"{text} " + " ".join(f"n{n}{i}" for i in range(5)) for n, text in enumerate(CLEAN)]
    return Corpus.from_texts(rows, users=CLEAN.users)


def half_of_the_words():
    rows = [" ".join(word for word in text.split() if int(word[1:]) < 40) for text in CLEAN]
    return Corpus.from_texts(rows, users=CLEAN.users)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "check"),
    [(near_copies(), "independent"), (half_unknown(), "read"), (half_of_the_words(), "comparable")],
)
def test_a_failed_check_is_undecided(texts, check):
    result = audit_tuned(texts=texts)
    assert (result.verdict, check in failed(result)) == (UNDECIDED, True)


@pytest.mark.slow
def test_rounding_of_log_probabilities_changes_no_p_value(monkeypatch, uninterrupted):
    statistics, rng = statistics_module.token_statistics, np.random.default_rng(0)

    def rounded(*arguments, **options):
        result = statistics(*arguments, **options)
        columns = {n: getattr(result, n) for n in ("log_probs", "means", "deviations")}
        return replace(result, **{
            name: (values * (1 + 1e-7 * rng.standard_normal(values.shape))).astype(np.float32)
            for name, values in columns.items()
        })  # fmt: skip

    monkeypatch.setattr(statistics_module, "token_statistics", rounded)
    result = audit_tuned()
    assert audited(result).tolist() == audited(uninterrupted).tolist()
    expected = uninterrupted.summary["list_p_value"]
    assert result.summary["list_p_value"] == pytest.approx(expected, abs=0.001)


@pytest.mark.slow
def test_an_interrupted_audit_resumes_and_scores_nothing_twice(
    tmp_path, monkeypatch, uninterrupted
):
    for name, model in (("tuned", TUNED), ("base", BASE)):
        save_model(model, tmp_path / name)
    statistics, calls = statistics_module.token_statistics, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return statistics(*arguments, **options)

    monkeypatch.setattr(statistics_module, "token_statistics", interrupted)
    options = {"base": tmp_path / "base", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        audit_tuned(tmp_path / "tuned", **options)
    assert audit_tuned(tmp_path / "tuned", **options).summary == uninterrupted.summary
    assert len(calls) == 3
    assert set(results.load(tmp_path / "out").run["models"]) == {"target", "base"}


# By ranks, with a small untrained model.

WORDS = tuple(f"w{n}" for n in range(20))
AUDITED = texts_of(["me", "you"], WORDS, seed=1)
COMPARED = texts_of([f"person {n:02}" for n in range(40)], WORDS, seed=2)


@pytest.fixture(scope="module")
def model():
    return untrained_lstm(WORDS)


def audit(model, texts=AUDITED, **options):
    return users(model, texts, **{"reference": COMPARED, "shadows": 0, **options})


def names_in(folder):
    return {path.name for path in folder.iterdir()}


class Interrupting(RecordingMonitor):
    """A monitor that raises KeyboardInterrupt at the first line that contains a text."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def log(self, text):
        super().log(text)
        if self.text in text:
            raise KeyboardInterrupt


def interrupt(model, out, line, **options):
    """Interrupt an audit at a line of its log; return the notes of the exception."""
    with pytest.raises(KeyboardInterrupt) as caught:
        audit(model, out=out, monitor=Interrupting(line), **options)
    return getattr(caught.value, "__notes__", [])


def test_paths_and_objects_give_the_same_audit_and_leave_no_files(model, tmp_path, monkeypatch):
    save_model(model, tmp_path / "model")
    for name, corpus in (("texts", AUDITED), ("reference", COMPARED)):
        rows = [{"text": t, "who": u} for t, u in zip(corpus, corpus.users, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    of_objects = audit(model)
    assert list((tmp_path / "temporary").iterdir()) == []
    options = {"reference": tmp_path / "reference.jsonl", "user": "who", "device": "cpu"}
    of_paths = audit(str(tmp_path / "model"), tmp_path / "texts.jsonl", **options)
    assert of_objects.rows == of_paths.rows
    assert of_objects.record["arguments"]["model"] == "<LSTMLanguageModel>"
    assert of_paths.record["models"]["target"]["sha256"]


def test_ranks_are_cached_for_the_same_audit_alone(model, tmp_path):
    assert interrupt(model, tmp_path / "out", "Comparing") == [KEPT]
    assert names_in(tmp_path) == {"out.partial"}
    with pytest.raises(RunError, match=r"other settings: alpha 0\.05 and not 0\.2"):
        audit(model, out=tmp_path / "out", alpha=0.2)
    with pytest.raises(RunError, match="other settings: texts"):
        audit(model, texts_of(["you"], WORDS, seed=3), out=tmp_path / "out")
    log = RecordingMonitor()
    result = audit(model, out=tmp_path / "out", monitor=log)
    assert "reading the texts" not in log.tasks
    assert result.rows == audit(model).rows
    assert names_in(tmp_path) == {"out"}


def test_trained_shadow_models_survive_an_interruption(model, tmp_path):
    options = {"shadows": 2, "epochs": 1, "hidden_size": 4}
    options |= {"select": "informative", "calls": 24}  # shadow models are trained first
    assert interrupt(model, tmp_path / "out", "trained shadow", **options) == [KEPT]
    assert names_in(tmp_path) == {"out.partial", "out.shadows"}
    log = RecordingMonitor()
    audit(model, out=tmp_path / "out", monitor=log, **options)
    assert sum("trained shadow" in line for line in log.lines) == 1
    assert names_in(tmp_path) == {"out", "out.shadows"}
