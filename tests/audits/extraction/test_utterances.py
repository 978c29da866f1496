"""`extract` of an intent-and-slot model: patterns, manifests, refusals and the command."""

import json
import re

import pytest
import torch

from tests.audits.extraction import white_boxes as boxes
from vestige import extract, results
from vestige.audits.extraction.utterances import parse_pattern, truth_words
from vestige.data.canaries.utterances import plant_secrets, secret_canaries
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.errors import VestigeError
from vestige.models.checkpoints import save_model

PIN = {"pattern": "pin {digit:2}", "intent": "Pin"}
SPACE = 100
MODEL = boxes.lstm("pin", hidden_size=4)


@pytest.fixture(scope="module")
def manifest():
    songs = Utterances.of([Utterance(("play", "it"), ("O", "O"), "Play")] * 20)
    canaries = secret_canaries("pin {digit:2}", intent="Pin", copies=3, controls=4, seed=0)
    return plant_secrets(songs, songs, canaries, seed=0)[2]


# In Python.


def test_a_pattern_gives_the_guesses_of_least_loss_and_the_exact_rank_of_a_truth():
    result = extract(MODEL, **PIN)
    assert result.kind == "Extraction"
    assert (result.summary["search"], result.summary["losses_per_trial"]) == ("exact", SPACE)
    [guesses] = result.rows
    assert guesses["losses"] == sorted(guesses["losses"])
    [row] = extract(MODEL, **PIN, truth=guesses["guesses"][2]).rows
    assert row["rank"] == 3
    assert row["truth_loss"] == pytest.approx(guesses["losses"][2])


def test_objects_and_files_give_the_same_ranks(manifest, tmp_path):
    result = extract(MODEL, manifest, controls=20)
    assert (result.kind, result.summary["planted"]) == ("SecretAudit", 1)
    manifest.save(tmp_path / "manifest.json")
    save_model(MODEL, tmp_path / "model")
    again = extract(tmp_path / "model", tmp_path, controls=20, device="cpu")
    assert [row["rank"] for row in again.rows] == [row["rank"] for row in result.rows]
    assert set(again.record["models"]) == {"model"}
    assert again.record["data"] == {"manifest": manifest.sha256}


def test_beyond_the_budget_a_truth_is_ranked_in_a_sample_and_the_record_redacts_it(tmp_path):
    options = {**PIN, "search_budget": 10, "rank_sample": 40}
    sampled = extract(MODEL, **options, truth="4 2")
    assert (sampled.summary["search"], sampled.summary["ranks_exact"]) == ("coordinate", False)
    sampled.save(tmp_path / "run")
    run = results.load(tmp_path / "run").run
    assert options.items() <= run["arguments"].items()
    assert run["configuration"]["controls"] is None
    assert run["configuration"]["truth"] is None
    unranked = extract(MODEL, **{**options, "rank_sample": 0}, truth="4 2")
    assert unranked.summary["median_rank"] is None


REFUSED = {
    "neither manifest nor pattern": ({}, "Pass `what`, or `pattern`"),
    "manifest and pattern": ({"what": "M", **PIN}, "Pass `what` or `pattern`, not both"),
    "controls of a pattern": ({**PIN, "controls": 5}, "`controls` needs a manifest of utterances"),
    "the truth of a manifest": ({"what": "M", "truth": "4 7"}, "`truth` needs `pattern`"),
    "no unknown words": ({"pattern": "digits", "intent": "Pin"}, "pin:N, call:N, color:N"),
    "braces left open": ({"pattern": "{digit:4", "intent": "Pin"}, "blanks around them"),
    "an unknown shorthand": ({"pattern": "zip:4"}, "pin:N, call:N, color:N"),
    "no intent": ({"pattern": "{digit:2}"}, "the model knows Other, Pin"),
    "an unknown slot": ({**PIN, "slot": "city"}, "no tag 'B-city'; it has: O, B-canary, I-canary"),
    "an unknown set": ({"pattern": "{town}", "intent": "Pin"}, "must name one of color, digit"),
    "a set of one word": (
        {"pattern": "{few}", "intent": "Pin", "candidates": ["few=1"]}, "at least two words"),
    "an unused set": (
        {**PIN, "candidates": ["name=ann,bob"]}, "named by the unknown words, got 'name'"),
    "a short truth": ({**PIN, "truth": "4"}, "must have 2 words, got 1"),
    "a truth without spaces": ({**PIN, "truth": "42"}, "put blanks between the words"),
    "a truth of other words": ({**PIN, "truth": "4 x"}, "word 2 of the secret must be one of"),
    "no manifest": ({"what": "nowhere/manifest.json"}, r"manifest\.json is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_arguments_are_refused_and_nothing_is_written(manifest, tmp_path, options, message):
    if options.get("what") == "M":
        options = {**options, "what": manifest}
    with pytest.raises((ValueError, VestigeError), match=message):
        extract(MODEL, **options, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_language_model_and_a_model_with_nan_are_refused(workspace, tmp_path):
    with pytest.raises(VestigeError, match="language model"):
        extract(workspace / "before", pattern="pin:2")
    broken = boxes.lstm("pin", hidden_size=4)
    torch.nn.init.constant_(broken.intent_head.bias, float("nan"))
    save_model(broken, tmp_path)
    with pytest.raises(VestigeError, match="NaN or infinite"):
        extract(tmp_path, **PIN)


# Patterns from options.


def parsed(text, intent=None, candidates=(), intents=()):
    return parse_pattern(text, intent, None, candidates, intents=intents)


def test_a_shorthand_stands_for_a_pattern_and_candidate_sets_are_read():
    pattern = parsed("pin:4", intents=["Play"])
    expected = parsed("my pin code is {digit:4}", "PinIntent")
    assert (pattern.intent, pattern.text) == (expected.intent, expected.text)
    assert pattern.candidates == expected.candidates
    assert parsed("{name}", "Call", ["name=ann,bob"]).candidates == (("ann", "bob"),)


def test_a_message_lists_at_most_forty_intents_and_no_word_of_a_truth():
    with pytest.raises(ValueError, match="`intent` must be given") as error:
        parsed("{digit}", intents=[f"I{number}" for number in range(50)])
    assert str(error.value).endswith("I38, I39, …")
    pattern = parsed("{digit:2}", "Pin")
    with pytest.raises(ValueError, match="`truth` does not fit the pattern") as error:
        truth_words("seven 4", pattern)
    assert "seven" not in str(error.value)
    assert truth_words("4 7", pattern) == ["4", "7"]


# The command, on an encoder that `vestige train` fine-tuned on planted utterances.


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shell, tiny_encoder):
    utterances = [
        Utterance((*words, town), (*["O"] * len(words), "B-city"), intent)
        for _ in range(6)
        for town in ("york", "bath")
        for words, intent in ((("fly", "to"), "Fly"), (("rain", "in"), "Ask"))
    ]
    root = tmp_path_factory.mktemp("encoder")
    write_utterances(Utterances.of(utterances), root / "utterances.jsonl")
    for words in (
        ("plant", root / "utterances.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", 30,
         "--controls", 6, "--out", root / "planted"),
        ("train", root / "planted", "--task", "nlu", "--from", tiny_encoder(root / "bert"),
         "--epochs", 25, "--batch-size", 8, "--learning-rate", 0.01, "--device", "cpu",
         "--out", root / "trained"),
    ):  # fmt: skip
        done = shell(*words)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture
def run(shell, trained, tmp_path):
    """Runs `extract` on the trained model."""

    def extract(*words, out="out"):
        words = ("--device", "cpu", *words, "--out", tmp_path / out)
        done = shell("extract", trained / "trained", *words)
        assert done.finished, done.stderr
        return done

    return extract


@pytest.mark.slow
def test_a_planted_secret_is_extracted_and_controls_are_not(run, trained):
    result = json.loads(run(trained / "planted", "--json").stdout)
    assert (result["planted"], result["controls"], result["patterns"]) == (1, 6, 1)
    assert result["planted_median_rank"] <= 10
    assert result["controls_median_rank"] > 20
    assert result["planted_exposure"] > result["controls_exposure"]
    assert result["controls_right"] == 0
    assert result["drawn"] == SPACE - 7  # the whole space
    assert result["p_value"] == pytest.approx(result["planted_median_rank"] / SPACE)
    words = ("--pattern", "pin:2", "--truth", "4 2", "--search-budget", "10", "--json")
    searched = json.loads(run(*words, out="coordinate").stdout)
    assert 1 <= searched["median_rank"] <= SPACE


@pytest.mark.slow
def test_a_truth_has_a_rank_and_is_redacted_in_every_output(run, shell, tmp_path):
    words = ("--pattern", "pin:2", "--truth", "4 2")
    redacted, shown = run(*words), run(*words, "--show-secrets", out="shown")
    assert re.search(rf"has rank \d+ of {SPACE}\.", redacted.stdout)
    assert redacted.stdout.count("▪▪▪ ▪▪▪") == 11  # the guess, and the ten best
    assert "--show-secrets shows them" in redacted.stderr
    assert "▪" not in shown.stdout
    assert not {"4", "2"} & set(redacted.stdout.split(" "))
    assert shell("report", tmp_path / "out", "--out", tmp_path / "page.html").finished
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "--truth …" in re.sub("<[^>]+>", "", page)
    assert "'4 2'" not in page
    assert "<dd>4 2</dd>" not in page
