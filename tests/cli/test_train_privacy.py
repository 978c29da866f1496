"""What `vestige train` promises, at its start and its end, for a model that has read before."""

import json
import shutil
import stat

import pytest

from vestige import results
from vestige.data.division import hash_texts
from vestige.privacy.accounting import Mechanism, composed_epsilon

WORDS = ["the gate opens", "a lantern stands", "the miller knows", "nobody sleeps", "a code rings"]
TEXTS = [f"{a} and {b} {n}" for n in range(4) for a in WORDS for b in WORDS]
SMALL = ["--layers", 1, "--hidden-size", 8]
QUICK = ["--epochs", 1, "--batch-size", 8, "--hold-out", 0]
PRIVATE = ["--defence", "dp-sgd", "--noise-multiplier", 2, "--accountant", "pld"]
LENGTH = ["--sequence-length", 16]


@pytest.fixture(scope="module")
def place(tmp_path_factory, shell):
    """Text that is protected, text of which half is, other text; models of two of them."""
    root = tmp_path_factory.mktemp("place")
    for name, texts in {
        "own": TEXTS,
        "half": [*TEXTS[:50], *(f"{text} once more" for text in TEXTS[50:])],
        "other": [f"{text} elsewhere" for text in TEXTS],
    }.items():
        rows = [{"text": text, "who": f"user {i % 20}"} for i, text in enumerate(texts)]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, words in {
        "public": ["other.jsonl", *SMALL, *LENGTH],
        "plain": ["own.jsonl", *SMALL, *LENGTH],
        "first": ["own.jsonl", "--from", root / "public", *LENGTH, *PRIVATE],
        "of-half": ["half.jsonl", "--from", root / "public", *LENGTH, *PRIVATE],
        "of-other": ["other.jsonl", *SMALL, *LENGTH, *PRIVATE, "--accept-private-vocabulary"],
    }.items():
        data, *rest = words
        done = shell("train", root / data, "--out", root / name, *QUICK, *rest)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def train(shell, place):
    """Train on the text that is protected; the summary, and what was said at start and end."""

    def train(out, *words):
        done = shell("train", place / "own.jsonl", "--out", out, *QUICK, *words)
        assert done.exit_code == 0, (done.stderr, done.exception)
        start, end = " ".join(done.stderr.split()).split("Privacy: ")
        return results.load(out / "run").summary, start, end

    return train


def ledger(folder):
    return json.loads((folder / "privacy.json").read_text())["trainings"]


def by_hand(*entries):
    mechanisms = [
        Mechanism(
            noise_multiplier=one["noise_multiplier"],
            sample_rate=one["sample_rate"],
            steps=one["steps_planned"],
        )
        for one in entries
    ]
    return composed_epsilon(mechanisms, delta=entries[-1]["delta"])


def test_a_private_training_from_other_text_has_its_epsilon_alone(train, place, tmp_path):
    words = ["--from", place / "public", *LENGTH, *PRIVATE]
    summary, start, end = train(tmp_path / "new", *words)
    for said in (start, end):
        assert f"ε = {summary['epsilon']:.3g} at δ = 1e-3 for a document of at most 16" in said
        assert "No guarantee" not in said
    assert summary["epsilon_with_ancestors"] == summary["epsilon"]
    assert (summary["ancestors_on_same_text"], summary["vocabulary_made_of"]) == (0, "other")


@pytest.mark.slow
@pytest.mark.parametrize(("before", "read"), [("first", 100), ("of-half", 50), ("of-other", 0)])
def test_private_trainings_compose_for_what_both_have_read(train, place, tmp_path, before, read):
    words = ["--from", place / before, *LENGTH, *PRIVATE]
    summary, start, end = train(tmp_path / "new", *words)
    entries = ledger(tmp_path / "new" / "model")
    assert summary["ancestors_on_same_text"] == bool(read)
    composed = by_hand(*(one for one in entries if one["defence"] == "dp-sgd"))
    wanted = composed if read else summary["epsilon"]
    assert summary["epsilon_with_ancestors"] == pytest.approx(wanted)
    for said in (start, end):
        assert f"ε = {wanted:.3g} at δ = 1e-3" in said
        assert ("Some of the documents were also used by training" in said) == (read > 0)


def test_an_undefended_ancestor_on_the_same_text_leaves_no_guarantee(train, place, tmp_path):
    words = ["--from", place / "plain", *LENGTH, *PRIVATE, "--accept-private-vocabulary"]
    summary, start, end = train(tmp_path / "new", *words)
    for said in (start, end):
        assert "No guarantee: training" in said
        assert "(undefended) trained on them without a guarantee" in said
    assert summary["epsilon_with_ancestors"] is None
    assert summary["ancestors_on_same_text"] == 1
    terms = results.load(tmp_path / "new" / "run").run["privacy"]
    assert terms["guarantee"].startswith("No guarantee: training")


def test_of_a_bare_model_the_overlap_is_a_condition(train, place, tmp_path):
    (place / "first" / "model").rename(tmp_path / "bare")
    try:
        summary, start, _ = train(tmp_path / "new", "--from", tmp_path / "bare", *LENGTH, *PRIVATE)
    finally:
        (tmp_path / "bare").rename(place / "first" / "model")
    assert summary["unknown_ancestors"] == 2
    assert "trained on is unknown. For a document that it used, there is no guarantee" in start
    assert "The text of the vocabulary is unknown" in start
    assert summary["vocabulary_made_of"] == "unknown"


def test_a_model_without_a_ledger_is_one_that_may_have_read_all(train, place, tmp_path):
    shutil.copytree(place / "public" / "model", tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "privacy.json").unlink()
    words = ["--from", tmp_path / "elsewhere", *LENGTH, *PRIVATE]
    _, start, end = train(tmp_path / "new", *words)
    for said in (start, end):
        assert "What the model it started from trained on is unknown" in said
    assert [one["defence"] for one in ledger(tmp_path / "new" / "model")] == ["unknown", "dp-sgd"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (SMALL, "--defence dp-sgd needs --vocabulary or --from"),
        ([*SMALL, "--tokenizer", "bpe", "--vocab-size", 300], "needs --vocabulary or --from"),
        (["--vocabulary", "plain", *SMALL], "--vocabulary has a vocabulary of a text"),
        (["--from", "plain"], "--from has a vocabulary of a text"),
    ],
)
def test_a_private_vocabulary_is_refused_with_the_remedy(shell, place, tmp_path, words, message):
    words = [place / word if word == "plain" else word for word in words]
    out = tmp_path / "new"
    done = shell("train", place / "own.jsonl", "--out", out, *QUICK, *LENGTH, *PRIVATE, *words)
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2
    assert message in said
    assert "--accept-private-vocabulary" in said
    assert not out.exists()


def test_a_private_vocabulary_that_was_accepted_is_told(train, tmp_path):
    words = [*SMALL, *LENGTH, *PRIVATE, "--accept-private-vocabulary"]
    summary, start, end = train(tmp_path / "new", *words)
    for said in (start, end):
        assert "ε does not cover the vocabulary, which was made from this text" in said
        assert "a rare word can be in it" in said
    assert summary["vocabulary_made_of"] == "own"


def test_no_hash_stands_in_what_is_released_and_records_are_private(place):
    [entry] = ledger(place / "plain" / "model")
    assert entry["vocabulary"] == entry["id"]
    directory = place / "plain"
    record = directory / "records" / f"{entry['id']}.npy"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    hashes = [one.tobytes() for one in hash_texts(TEXTS)]
    assert hashes[0] in record.read_bytes()
    run = results.load(directory / "run").run
    released = b"".join(file.read_bytes() for file in (directory / "model").iterdir())
    for name in (*hashes, run["data"]["training"]["sha256"].encode()):
        assert name not in released
        assert name.hex().encode() not in released


def test_a_training_keeps_the_records_of_its_ancestors(train, place, tmp_path):
    train(tmp_path / "new", "--from", place / "first", *LENGTH, *PRIVATE)
    entries = ledger(tmp_path / "new")
    assert [one["defence"] for one in entries] == ["none", "dp-sgd", "dp-sgd"]
    kept = {file.stem for file in (tmp_path / "new" / "records").iterdir()}
    assert kept == {one["id"] for one in entries}
    assert [one["steps"] for one in entries] == [8, 13, None]
    assert ledger(tmp_path / "new" / "model")[-1]["steps"] == 13


@pytest.mark.slow
def test_resumed_it_keeps_its_ledger_whatever_from_says_now(train, shell, place, tmp_path):
    words = ["--from", place / "first", *LENGTH, *PRIVATE]
    train(tmp_path / "new", *words)
    before = ledger(tmp_path / "new")
    shutil.copytree(place / "first" / "model", tmp_path / "bare")
    (tmp_path / "bare" / "privacy.json").unlink()
    words[1] = tmp_path / "bare"
    again, _, _ = train(tmp_path / "new", *words, "--resume")
    assert ledger(tmp_path / "new") == before
    assert again["ancestors_on_same_text"] == 1


def test_a_damaged_ledger_is_named(shell, place, tmp_path):
    shutil.copytree(place / "public" / "model", tmp_path / "bad")
    (tmp_path / "bad" / "privacy.json").write_text('{"format": "vestige-privacy-1"}')
    words = ["--from", tmp_path / "bad", *QUICK, *LENGTH]
    done = shell("train", place / "own.jsonl", "--out", tmp_path / "new", *words)
    assert done.exit_code == 2
    assert "privacy.json is not a privacy ledger" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_budget_too_small_says_that_nothing_will_be_learnt(train, place, tmp_path):
    words = ["--from", place / "public", *LENGTH, "--defence", "dp-sgd"]
    _, start, _ = train(tmp_path / "new", *words, "--epsilon", 0.05, "--accountant", "rdp")
    assert "The model will learn almost nothing" in start
    assert "the noise is as large as the sum of 11.3 sequences, and a step has 8" in start


@pytest.mark.slow
def test_several_private_trainings_of_one_text_are_told_together(shell, place, tmp_path):
    words = ["--from", place / "public", *QUICK, *LENGTH, *PRIVATE, "--seeds", 2]
    done = shell("train", place / "own.jsonl", "--out", tmp_path / "new", *words)
    assert done.exit_code == 0, done.stderr
    entries = [ledger(tmp_path / "new" / f"seed-{seed}")[-1] for seed in (0, 1)]
    said = " ".join(done.stderr.split())
    assert f"All 2 together have ε = {by_hand(*entries):.3g} at δ = 1e-3" in said


def test_the_other_tasks_keep_a_ledger_too(shell, tmp_path):
    said = {"tokens": ["play", "jazz"], "tags": ["O", "B-genre"], "intent": "PlayMusic"}
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(said) + "\n" for _ in range(20)))
    pair = {"text": "le portail", "english": "the gate"}
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for _ in range(20)))
    for data, words in {
        "said": ["--task", "nlu", "--hidden-size", 4, "--embedding-size", 4],
        "pairs": ["--task", "translation", "--source", "english", "--hidden-size", 4],
    }.items():
        out = tmp_path / f"of-{data}"
        done = shell("train", tmp_path / f"{data}.jsonl", "--out", out, "--epochs", 1, *words)
        assert done.exit_code == 0, (done.stderr, done.exception)
        [entry] = ledger(out / "model")
        assert entry["defence"] == "none"
        assert (out / "records" / f"{entry['id']}.npy").is_file()
