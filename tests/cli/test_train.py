import json

import pytest

from vestige import results
from vestige.data.corpus import Corpus
from vestige.data.division import divide
from vestige.models.checkpoints import load_model
from vestige.models.folders import fingerprint

QUICK = ["--epochs", 1, "--layers", 1, "--hidden-size", 8, "--batch-size", 2]
HELD = ["--hold-out", 0.3]  # one of five texts


def train(shell, *words):
    done = shell("train", *words, "--json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(shell, workspace, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "before"
    return out, train(shell, workspace / "corpus.txt", "--out", out, *QUICK, *HELD)


def test_a_training_leaves_a_model_and_a_run(trained):
    out, summary = trained
    assert load_model(out).architecture == "lstm"
    assert summary["model"] == str(out / "model")
    run = results.load(out / "run")
    assert run.result == "DefendedTraining"
    assert run.run["data"]["training"]["documents"] == 32
    assert run.run["configuration"]["epochs"] == 1


def test_the_precision_really_used_is_recorded(shell, workspace, trained, tmp_path):
    out, summary = trained
    assert results.load(out / "run").run["configuration"]["precision"] == "float32"

    words = [workspace / "corpus.txt", "--out", tmp_path / "half", *QUICK, *HELD]
    half = train(shell, *words, "--precision", "bfloat16")

    assert results.load(tmp_path / "half" / "run").run["configuration"]["precision"] == "bfloat16"
    assert fingerprint(tmp_path / "half") != fingerprint(out)  # it was used, on any CPU
    assert half["validation_perplexity"] == pytest.approx(summary["validation_perplexity"], rel=0.1)


def test_a_finished_training_is_resumed_without_change(shell, workspace, trained):
    out, summary = trained
    before = fingerprint(out)
    again = train(shell, workspace / "corpus.txt", "--out", out, "--resume", *QUICK, *HELD)
    assert again == summary
    assert fingerprint(out) == before


def test_another_training_is_not_resumed(shell, workspace, trained):
    out, _ = trained
    done = shell(
        "train", workspace / "corpus.txt", "--out", out, "--resume", *QUICK, *HELD, "--seed", 9
    )
    assert done.exit_code == 2
    assert "another training" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--hold-out", 0.6], "has an encoding of other text or of another vocabulary."),
        (["--limit", 39, *HELD], "has an encoding of other text or of another vocabulary."),
        (["--hold-out", 0], "has an encoding of other text or of another vocabulary."),
        ([*HELD, "--seed", 9], "another training"),
        ([*HELD, "--epochs", 2], "another training"),
    ],
)
def test_a_resume_that_asks_for_something_else_changes_no_file(
    shell, workspace, trained, words, names
):
    out, _ = trained
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = shell("train", workspace / "corpus.txt", "--out", out, "--resume", *QUICK, *words)
    assert done.exit_code == 2
    assert names in done.stderr
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_continued_model_keeps_its_vocabulary(shell, workspace, trained, tmp_path):
    out, _ = trained
    train(shell, workspace / "corpus.txt", "--from", out, "--out", tmp_path / "new", "--epochs", 1)
    after = load_model(tmp_path / "new")
    assert after.vocabulary.fingerprint() == load_model(out).vocabulary.fingerprint()
    assert fingerprint(tmp_path / "new") != fingerprint(out)
    assert results.load(tmp_path / "new" / "run").run["models"]["from"]["path"] == str(out)


def test_a_borrowed_vocabulary_makes_snapshots_comparable(shell, workspace, trained, tmp_path):
    out, _ = trained
    words = [workspace / "planted", "--vocabulary", out, "--out", tmp_path / "new", *QUICK]
    train(shell, *words)
    assert (
        load_model(tmp_path / "new").vocabulary.fingerprint()
        == load_model(out).vocabulary.fingerprint()
    )


def test_a_transformer_over_subwords(shell, workspace, tmp_path):
    words = ["--architecture", "transformer", "--layers", 1, "--hidden-size", 12]
    words += ["--tokenizer", "bpe", "--vocab-size", 300, "--sequence-length", 8, "--epochs", 1]
    train(shell, workspace / "corpus.txt", "--out", tmp_path / "new", *words)
    assert load_model(tmp_path / "new").architecture == "transformer"


def test_validation_text_of_its_own(shell, workspace, tmp_path):
    words = ["--validation", workspace / "corpus.txt", "--out", tmp_path / "new", *QUICK]
    summary = train(shell, workspace / "corpus.txt", *words)
    assert summary["validation_perplexity"] > 1
    assert results.load(tmp_path / "new" / "run").run["data"]["training"]["documents"] == 40


def test_nothing_is_held_out_when_nothing_is_asked(shell, workspace, tmp_path):
    words = ["--hold-out", 0, "--out", tmp_path / "new", *QUICK]
    assert train(shell, workspace / "corpus.txt", *words)["validation_perplexity"] is None


@pytest.mark.slow
def test_what_is_held_out_depends_on_each_text_alone_and_is_said(shell, tmp_path):
    lines = [f"the gate {i} opens at {i}" for i in range(60)]
    held = []
    for gone in (None, 0, 31):
        kept = [line for i, line in enumerate(lines) if i != gone]
        (tmp_path / f"{gone}.txt").write_text("\n".join(kept) + "\n")
        out = tmp_path / f"out-{gone}"
        done = shell("train", tmp_path / f"{gone}.txt", "--out", out, *QUICK, *HELD)
        assert done.exit_code == 0, done.stderr
        found = divide(Corpus.from_texts(kept), 0.3)
        told = results.load(out / "run").run["division"]
        assert told == found.summary()
        assert f"Validation: {told['held_out_documents']} of {len(kept)} documents" in done.stderr
        validation = results.load(out / "run").run["data"]["validation"]
        assert validation["sha256"] == found.held_out.fingerprint()
        held.append(set(found.held_out))
    assert held[0] - {lines[0]} == held[1]
    assert held[0] - {lines[31]} == held[2]


def test_nothing_to_hold_out_is_said(shell, workspace, tmp_path):
    done = shell("train", workspace / "corpus.txt", "--out", tmp_path / "new", *QUICK)
    assert done.exit_code == 0, done.stderr
    assert "Validation: no document, because hashes choose" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_model_no_better_than_word_frequencies_is_said_to_be(shell, workspace, tmp_path):
    corpus = workspace / "corpus.txt"
    words = [corpus, "--validation", corpus, "--out", tmp_path / "new", *QUICK]
    words += ["--learning-rate", 1e-6]
    done = shell("train", *words)
    assert done.exit_code == 0, done.stderr
    summary = results.load(tmp_path / "new" / "run").summary
    assert summary["validation_perplexity"] > summary["word_frequency_perplexity"]
    assert "predicts no better than word frequencies" in " ".join(done.stderr.split())
    planted = shell("plant", workspace / "corpus.txt", "--phrase", "the code knows a mill",
                    "--vocabulary", tmp_path / "new", "--out", tmp_path / "planted")  # fmt: skip
    assert planted.exit_code == 0, planted.stderr
    asked = ["exposure", tmp_path / "new", tmp_path / "planted"]
    done = shell(*asked, "--references", 100, "--out", tmp_path / "exposure")
    assert done.exit_code == 3, done.stderr
    assert done.stdout.startswith("UNDECIDED")
    assert "predicts no better than word frequencies" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_model_that_has_learnt_gets_no_warning(shell, workspace, tmp_path):
    words = ["--epochs", 30, "--layers", 1, "--hidden-size", 16, "--batch-size", 2]
    held = ["--validation", workspace / "corpus.txt"]
    done = shell("train", workspace / "corpus.txt", "--out", tmp_path / "new", *words, *held)
    summary = results.load(tmp_path / "new" / "run").summary
    assert summary["validation_perplexity"] < summary["word_frequency_perplexity"]
    assert "word frequencies" not in done.stderr


@pytest.mark.slow
def test_several_seeds_are_several_trainings_that_hold_out_the_same_text(
    shell, workspace, tmp_path
):
    out = tmp_path / "several"
    done = shell("train", workspace / "corpus.txt", "--out", out, *QUICK, "--seeds", 2, "--seed", 5)
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert sorted(path.name for path in out.iterdir()) == ["seed-5", "seed-6"]
    runs = [results.load(out / name / "run").run for name in ("seed-5", "seed-6")]
    assert [run["seed"] for run in runs] == [5, 6]
    assert runs[0]["data"] == runs[1]["data"]
    assert fingerprint(out / "seed-5") != fingerprint(out / "seed-6")
    alone = train(shell, workspace / "corpus.txt", "--out", tmp_path / "one", *QUICK, "--seed", 6)
    assert fingerprint(alone["model"]) == fingerprint(out / "seed-6")


def test_several_seeds_do_not_overwrite(shell, workspace, trained, tmp_path):
    out, _ = trained
    done = shell("train", workspace / "corpus.txt", "--out", out, *QUICK, "--seeds", 2)
    assert done.exit_code == 2
    assert "exists already" in done.stderr
    done = shell("train", workspace / "corpus.txt", "--out", out, *QUICK, "--seeds", 2, "--resume")
    assert "holds one training" in done.stderr


def test_several_trainings_are_one_summary_as_json(shell, workspace, tmp_path):
    out = tmp_path / "several"
    words = ["--out", out, *QUICK, "--seeds", 2, "--json"]
    done = shell("train", workspace / "corpus.txt", *words)
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert json.loads(done.stdout) == {"directory": str(out), "trainings": 2}
