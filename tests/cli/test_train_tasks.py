"""`vestige train --task next-word|translation|dialogue`: from users' texts to a model and a run."""

import json

import numpy as np
import pytest
import torch

from tests.cli.refusals import listing, refused, table
from vestige import results
from vestige.data.vocabulary import load_vocabulary
from vestige.models.checkpoints import load_model, load_seq2seq, save_model
from vestige.models.recurrent_network import GRULanguageModel, LSTMConfig, LSTMLanguageModel

FRENCH, ENGLISH = ("un", "deux", "trois", "quatre"), ("one", "two", "three", "four")
PAIRS = ["--task", "translation", "--source", "french", "--text", "english", "--user", "who"]
QUICK = ["--hidden-size", 6, "--batch-size", 8, "--epochs", 2, "--learning-rate", 0.02]
SMALL = [*PAIRS, *QUICK]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Lists of numbers in two languages, of four people."""
    root, chance = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    lines = []
    for number in range(40):
        said = chance.integers(4, size=chance.integers(1, 5))
        french, english = (" ".join(words[i] for i in said) for words in (FRENCH, ENGLISH))
        lines.append(json.dumps({"french": french, "english": english, "who": f"u{number % 4}"}))
    (root / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    torch.manual_seed(0)
    shape = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
    (root / "words").mkdir()
    (root / "words" / "vocabulary.json").write_text(
        '{"format": "vestige-words-1", "lowercase": false, "tokenise": "whitespace", '
        '"words": ["<unk>", "<eos>", "one"]}'
    )
    save_model(LSTMLanguageModel(load_vocabulary(root / "words"), shape), root / "lstm")
    return root


def train(shell, *words):
    done = shell("train", *words, "--json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    return json.loads(done.stdout)  # --json prints JSON and nothing else


@pytest.fixture(scope="module")
def translator(shell, place):
    out = place / "translator"
    return out, train(shell, place / "pairs.jsonl", "--out", out, *SMALL, "--hold-out", 0.2)


def test_a_translation_leaves_a_model_and_a_run(translator):
    out, summary = translator
    assert summary["model"] == str(out / "model")
    assert (summary["task"], summary["attention"], summary["cell"]) == ("translation", True, "lstm")
    assert 0 <= summary["validation_bleu"] <= 100
    assert "tok:13a" in summary["validation_bleu_signature"]
    for name in ("accuracy", "perplexity"):
        found = summary[f"validation_{name}"]
        assert summary[f"validation_{name}_low"] <= found <= summary[f"validation_{name}_high"]
    run = results.load(out / "run")
    assert run.result == "PairTraining"
    trained = run.run["models"]["trained"]
    assert (trained["architecture"], trained["embedding_size"]) == ("seq2seq", 6)
    assert trained["source_vocabulary"] != trained["vocabulary"]
    parts = [part["documents"] for part in run.run["data"].values()]
    assert sum(parts) == 40
    assert parts[1] == run.run["division"]["held_out_documents"] > 0
    assert run.run["configuration"]["batch_size"] == 8
    assert run.run["configuration"]["precision"] == "float32"
    assert len(run.rows) == 2
    assert summary["epoch"] in (1, 2)


def test_the_model_translates_with_a_vocabulary_for_each_language(translator):
    model = load_seq2seq(translator[0], device="cpu")
    assert set(model.source_vocabulary.words) == {"<unk>", "<eos>", *FRENCH}
    assert set(model.vocabulary.words) == {"<unk>", "<eos>", *ENGLISH}
    given = model.given("un deux")
    assert given.log_probs(given.start(1)).shape == (1, 6)


def test_a_dialogue_has_no_attention_and_no_bleu(shell, place):
    out = place / "answers"
    words = [*SMALL, "--task", "dialogue", "--architecture", "gru", "--embedding-size", 5]
    words += ["--optimizer", "sgd", "--momentum", 0.9, "--vocabulary", place / "translator"]
    summary = train(shell, place / "pairs.jsonl", "--out", out, *words)
    assert (summary["task"], summary["attention"], summary["cell"]) == ("dialogue", False, "gru")
    assert "validation_bleu" not in summary
    run = results.load(out / "run").run
    assert run["configuration"]["momentum"] == 0.9
    assert run["models"]["trained"]["embedding_size"] == 5


@pytest.mark.usefixtures("translator")
def test_a_second_training_takes_both_vocabularies_of_the_first(shell, place):
    out = place / "second"
    lines = (place / "pairs.jsonl").read_text().splitlines()
    (place / "other.jsonl").write_text("\n".join(lines[:3]).replace("one", "uno") + "\n")
    words = [*SMALL, "--vocabulary", place / "translator", "--hold-out", 0]
    summary = train(shell, place / "other.jsonl", "--out", out, *words)
    assert summary["validation_accuracy"] is None
    assert "validation_accuracy_low" not in summary
    first, second = (load_seq2seq(place / name, device="cpu") for name in ("translator", "second"))
    assert first.vocabulary == second.vocabulary
    assert first.source_vocabulary == second.source_vocabulary


@pytest.mark.slow
def test_a_training_goes_on_with_from_and_is_not_overwritten(shell, place, translator):
    out = place / "further"
    words = [*PAIRS, "--epochs", 1, "--from", translator[0]]
    train(shell, place / "pairs.jsonl", "--out", out, *words)
    assert "from" in results.load(out / "run").run["models"]
    again = train(shell, place / "pairs.jsonl", "--out", out, *words, "--resume")
    assert again == {"model": str(out / "model"), **results.load(out / "run").summary}
    done = shell("train", place / "pairs.jsonl", "--out", out, *words)
    assert done.exit_code == 2
    assert "never overwritten" in done.stderr


def test_the_terminal_shows_scores_with_intervals(shell, place):
    words = [*SMALL, "--epochs", 1, "--hold-out", 0.2]
    done = shell("train", place / "pairs.jsonl", "--out", place / "shown", *words)
    assert done.exit_code == 0, done.stderr
    assert f"Run folder: {place / 'shown'}." in done.stderr
    assert "Epoch 1 kept, validation perplexity" in done.stderr
    for words in ("word accuracy", "perplexity", "BLEU", "95% CI"):
        assert words in done.stdout


@pytest.mark.parametrize("architecture", ["lstm", "gru"])
def test_next_words_are_learnt_from_texts_one_by_one(shell, place, architecture):
    out = place / f"next-{architecture}"
    words = ["--task", "next-word", "--text", "english", "--user", "who", "--epochs", 1]
    words += ["--architecture", architecture, "--hidden-size", 8]
    train(shell, place / "pairs.jsonl", "--out", out, *words)
    run = results.load(out / "run")
    asked = run.run["configuration"]
    assert (asked["batching"], asked["batch_size"]) == ("documents", 35)
    assert (asked["optimizer"], asked["learning_rate"]) == ("adam", 1e-3)
    model = load_model(out, device="cpu")
    assert isinstance(model, GRULanguageModel if architecture == "gru" else LSTMLanguageModel)
    shape = model.config
    assert (shape.layers, shape.embedding_size, shape.hidden_size) == (1, 8, 8)
    assert shape.dropout_out == 0.5


@pytest.mark.slow
def test_a_defence_chooses_its_own_batches_of_next_words(shell, place):
    words = ["--task", "next-word", "--text", "english", "--user", "who", "--epochs", 1]
    words += ["--hidden-size", 4, "--batch-size", 2, "--defence", "dp-sgd", "--unit", "user"]
    words += ["--noise-multiplier", 1, "--architecture", "gru", "--accept-private-vocabulary"]
    train(shell, place / "pairs.jsonl", "--out", place / "private", *words)
    run = results.load(place / "private" / "run")
    assert run.run["configuration"]["batching"] == "poisson-users"


@pytest.mark.slow
@pytest.mark.usefixtures("translator")
@pytest.mark.parametrize(("words", "says"), table("tasks"))
def test_what_cannot_be_had_is_refused(shell, place, words, says):
    (place / "plain.jsonl").write_text('{"english": "one", "who": "u1"}\n')
    given = (word.replace("W/", f"{place}/", 1) for word in words.split())
    command = ["train", *given, "--out", place / "new"]
    refused(shell, command, *says, unchanged=lambda: listing(place))


def test_a_translator_is_refused_where_next_words_are_asked(shell, place, translator):
    done = shell("diff", translator[0], translator[0], "--out", place / "none")
    assert done.exit_code == 2
    assert "is a sequence-to-sequence model: it needs a source text." in " ".join(
        done.stderr.split()
    )
