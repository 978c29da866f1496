"""`membership` of users in Python: beside a base, by ranks alone, interrupted and resumed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.audits.chains import Chain
from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import users
from tests.monitors import RecordingMonitor
from vestige import results
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import RunError
from vestige.models import token_statistics as statistics_module
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.store import KEPT

# Beside the base that the target was fine-tuned from.

CHAIN, EACH = Chain(80, 1.0), 5


def of_users(count, seed, mark):
    """Five texts of 15 words of each user."""
    texts = CHAIN.texts([15] * count * EACH, np.random.default_rng(seed))
    return Corpus.from_texts(texts, users=[f"{mark}{n // EACH}" for n in range(len(texts))])


PUBLIC, INSIDE, OUTSIDE, REFERENCE, CLEAN = (
    of_users(count, seed, mark)
    for count, seed, mark in (
        (400, 1, "p"), (10, 2, "in"), (10, 3, "out"), (60, 4, "r"), (20, 5, "clean"),
    )
)  # fmt: skip
BASE, TUNED = CHAIN.counted((PUBLIC, 1)), CHAIN.counted((PUBLIC, 1), (INSIDE, 5))


def based(model=TUNED, texts=INSIDE + OUTSIDE, **given):
    return users(model, texts, **{"reference": REFERENCE, "base": BASE, **given})


@pytest.fixture(scope="module")
def plain():
    return based()


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 20])
def test_members_are_found_from_all_or_from_a_few_tokens(top_k):
    result = based(top_k=top_k)
    p_values = dict(zip(audited(result, "user"), audited(result), strict=True))
    inside, outside = (
        np.mean([p for name, p in p_values.items() if name.startswith(mark)])
        for mark in ("in", "out")
    )
    assert inside < 0.15 < 0.3 < outside
    assert result.summary["k"] == (top_k or len(CHAIN.vocabulary))


@pytest.mark.slow
def test_a_target_that_read_none_of_the_users_gives_even_p_values():
    values = []
    for seed in range(6):
        tuned = CHAIN.counted((PUBLIC, 1), (of_users(10, 50 + seed, "x"), 1))
        values += audited(based(tuned, seed=seed)).tolist()
    assert np.mean(np.array(values) <= 0.05) <= 0.1
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_members_are_a_leak_and_others_are_none_even_with_a_greeting_in_common():
    leak, clean = based(texts=INSIDE), based(texts=CLEAN)
    assert (leak.verdict, clean.verdict) == (LEAK, NO_LEAK)
    assert leak.summary["list_p_value"] < 0.001
    assert clean.summary["claim"]["verb"] == "membership --base"
    assert not audited(clean, "called").any()
    greeting = " ".join(CHAIN.words[:12])
    texts, reference = (
        side + Corpus.from_texts([greeting] * len(names), users=names)
        for side in (CLEAN, REFERENCE)
        for names in [sorted(set(side.users))]
    )
    greeted = based(texts=texts, reference=reference)
    assert (greeted.verdict, audited(greeted).size) == (NO_LEAK, 20)
    assert greeted.summary["calibrated_on"] == 60


def half_unknown(texts):
    rows = [f"{text} " + " ".join(f"n{n}{at}" for at in range(5)) for n, text in enumerate(texts)]
    return Corpus.from_texts(rows, users=texts.users)


def near_copies():
    """Texts of nine users that are three with other last words."""
    rng, owners = np.random.default_rng(8), [f"u{n // 5}" for n in range(45)]
    starts = [text.rpartition(" ")[0] for text in list(INSIDE)[:3] for _ in range(15)]
    texts = [f"{start} {CHAIN.words[int(rng.integers(80))]}" for start in starts]
    return Corpus.from_texts(texts, users=owners)


def half_of_the_words(texts):
    halves = [" ".join(word for word in text.split() if int(word[1:]) < 40) for text in texts]
    return Corpus.from_texts(halves, users=texts.users)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "check"),
    [
        (near_copies(), "independent"),
        (half_unknown(CLEAN), "read"),
        (half_of_the_words(CLEAN), "comparable"),
    ],
)
def test_a_check_that_fails_leaves_it_undecided(texts, check):
    result = based(texts=texts)
    assert (result.verdict, check in failed(result)) == (UNDECIDED, True)


@pytest.mark.slow
def test_rounding_of_log_probabilities_moves_no_p_value(monkeypatch, plain):
    ask, rng = statistics_module.token_statistics, np.random.default_rng(0)

    def disturbed(*given, **more):
        result = ask(*given, **more)
        columns = {n: getattr(result, n) for n in ("log_probs", "means", "deviations")}
        return replace(result, **{
            name: (one * (1 + 1e-7 * rng.standard_normal(one.shape))).astype(np.float32)
            for name, one in columns.items()
        })  # fmt: skip

    monkeypatch.setattr(statistics_module, "token_statistics", disturbed)
    again = based()
    assert audited(again).tolist() == audited(plain).tolist()
    assert again.summary["list_p_value"] == pytest.approx(plain.summary["list_p_value"], abs=0.001)


@pytest.mark.slow
def test_a_killed_audit_beside_a_base_resumes_and_reads_nothing_twice(tmp_path, monkeypatch, plain):
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


# By ranks: a small untrained model.

FEW = tuple(f"w{n}" for n in range(20))


def texts_of(names, *, seed):
    rng = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(4)]
    return Corpus.from_texts([" ".join(rng.choice(FEW, 8)) for _ in owners], users=owners)


MINE = texts_of(["me", "you"], seed=1)
OTHERS = texts_of([f"person {n:02}" for n in range(40)], seed=2)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *FEW)), config).eval()


def audit(model, texts=MINE, **named):
    return users(model, texts, **{"reference": OTHERS, "shadows": 0, **named})


def names_in(folder):
    return {path.name for path in folder.iterdir()}


class Stop(RecordingMonitor):
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


def test_paths_and_objects_give_the_same_audit_and_leave_nothing(model, tmp_path, monkeypatch):
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


def test_ranks_are_kept_and_belong_to_one_audit(model, tmp_path):
    assert interrupted(model, tmp_path / "out", monitor=Stop("Comparing")) == [KEPT]
    assert names_in(tmp_path) == {"out.partial"}
    with pytest.raises(RunError, match=r"other settings: alpha 0\.05 and not 0\.2"):
        audit(model, out=tmp_path / "out", alpha=0.2)
    with pytest.raises(RunError, match="other settings: texts"):
        audit(model, texts_of(["you"], seed=3), out=tmp_path / "out")
    log = RecordingMonitor()
    result = audit(model, out=tmp_path / "out", monitor=log)
    assert "reading the texts" not in log.tasks
    assert result.rows == audit(model).rows
    assert names_in(tmp_path) == {"out"}


def test_shadow_models_are_kept_and_the_interruption_says_so(model, tmp_path):
    options = {"shadows": 2, "epochs": 1, "hidden_size": 4}
    options |= {"select": "informative", "calls": 24}  # shadow models come first
    stop = Stop("trained shadow")
    assert interrupted(model, tmp_path / "out", monitor=stop, **options) == [KEPT]
    assert names_in(tmp_path) == {"out.partial", "out.shadows"}
    log = RecordingMonitor()
    audit(model, out=tmp_path / "out", monitor=log, **options)
    assert sum("trained shadow" in line for line in log.lines) == 1
    assert names_in(tmp_path) == {"out", "out.shadows"}
