"""`extract` of an intent-and-slot model: patterns, manifests, refusals, and the command."""

import json
import re

import pytest
import torch

from vestige import extract, results
from vestige.audits.extraction.utterances import parse_pattern, truth_words
from vestige.data.canaries.utterances import plant_secrets, secret_canaries
from vestige.data.utterances import Utterance, Utterances, write_utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import VestigeError
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import save_model

PIN = {"pattern": "pin {digit:2}", "intent": "Pin"}
SPACE = 100


def network(seed: int) -> IntentSlotModel:
    words = WordVocabulary(("<unk>", "<eos>", "pin", *"0123456789"))
    shape = IntentSlotConfig(
        intents=("Pin", "Play"), tags=("O", "B-canary", "I-canary"), hidden_size=4
    )
    torch.manual_seed(seed)
    return IntentSlotModel(words, shape).eval()


MODEL = network(0)


@pytest.fixture(scope="module")
def manifest():
    songs = Utterances.of([Utterance(("play", "it"), ("O", "O"), "Play")] * 20)
    canaries = secret_canaries("pin {digit:2}", intent="Pin", copies=3, controls=4, seed=0)
    return plant_secrets(songs, songs, canaries, seed=0)[2]


# In Python.


def test_a_pattern_gives_the_guess_of_least_loss_and_the_truth_its_counted_rank():
    result = extract(MODEL, **PIN)
    assert result.kind == "Extraction"
    assert (result.summary["search"], result.summary["losses_per_trial"]) == ("exact", SPACE)
    [every] = result.rows
    assert every["losses"] == sorted(every["losses"])
    [row] = extract(MODEL, **PIN, truth=every["guesses"][2]).rows
    assert row["rank"] == 3
    assert row["truth_loss"] == pytest.approx(every["losses"][2])


def test_a_manifest_is_audited_in_memory_as_in_files(manifest, tmp_path):
    result = extract(MODEL, manifest, controls=20)
    assert (result.kind, result.summary["planted"]) == ("SecretAudit", 1)
    manifest.save(tmp_path / "manifest.json")
    save_model(MODEL, tmp_path / "model")
    again = extract(tmp_path / "model", tmp_path, controls=20, device="cpu")
    assert [row["rank"] for row in again.rows] == [row["rank"] for row in result.rows]
    assert set(again.record["models"]) == {"model"}
    assert again.record["data"] == {"manifest": manifest.sha256}


def test_the_record_repeats_the_call_and_its_settings_hold_no_truth(tmp_path):
    result = extract(MODEL, **PIN, truth="4 7", search_budget=50, rank_sample=10)
    result.save(tmp_path / "run")
    run = results.load(tmp_path / "run").run
    given = {"pattern": "pin {digit:2}", "intent": "Pin", "search_budget": 50, "rank_sample": 10}
    assert given.items() <= run["arguments"].items()
    assert run["configuration"]["controls"] is None
    assert run["configuration"]["truth"] is None


def test_secrets_beyond_the_budget_are_ranked_by_a_sample_or_not_at_all():
    given = {**PIN, "truth": "4 2", "search_budget": 10}
    sampled = extract(MODEL, **given, rank_sample=40).summary
    assert (sampled["search"], sampled["ranks_exact"]) == ("coordinate", False)
    assert extract(MODEL, **given, rank_sample=0).summary["median_rank"] is None


REFUSED = {
    "nothing asked": ({}, "Pass `what`, or `pattern`"),
    "manifest and pattern": ({"what": "M", **PIN}, "Pass `what` or `pattern`, not both"),
    "controls of a pattern": ({**PIN, "controls": 5}, "`controls` needs a manifest of utterances"),
    "the truth of a manifest": ({"what": "M", "truth": "4 7"}, "`truth` needs `pattern`"),
    "no unknown words": ({"pattern": "digits", "intent": "Pin"}, "pin:N, call:N, color:N"),
    "braces left open": ({"pattern": "{digit:4", "intent": "Pin"}, "blanks around them"),
    "an unknown shorthand": ({"pattern": "zip:4"}, "pin:N, call:N, color:N"),
    "no intent": ({"pattern": "{digit:2}"}, "the model knows Pin, Play"),
    "an unknown slot": ({**PIN, "slot": "city"}, "no tag 'B-city'; it has: O, B-canary, I-canary"),
    "an unknown set": ({"pattern": "{town}", "intent": "Pin"}, "must name one of color, digit"),
    "a set of one word": (
        {"pattern": "{few}", "intent": "Pin", "candidates": ["few=1"]}, "at least two words"),
    "an unused set": (
        {**PIN, "candidates": ["name=ann,bob"]}, "named by the unknown words, got 'name'"),
    "a short truth": ({**PIN, "truth": "4"}, "must have 2 words, got 1"),
    "a truth without blanks": ({**PIN, "truth": "42"}, "put blanks between the words"),
    "a truth of other words": ({**PIN, "truth": "4 x"}, "word 2 of the secret must be one of"),
    "no manifest there": ({"what": "nowhere/manifest.json"}, r"manifest\.json is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_written(
    manifest, tmp_path, given, message
):
    if given.get("what") == "M":
        given = {**given, "what": manifest}
    with pytest.raises((ValueError, VestigeError), match=message):
        extract(MODEL, **given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_models_are_refused(workspace, tmp_path):
    with pytest.raises(VestigeError, match="language model"):
        extract(workspace / "before", pattern="pin:2")
    broken = network(0)
    torch.nn.init.constant_(broken.intent_head.bias, float("nan"))
    save_model(broken, tmp_path)
    with pytest.raises(VestigeError, match="NaN or infinite"):
        extract(tmp_path, **PIN)


# The pattern, as options give it.


def parsed(text, intent=None, candidates=(), intents=()):
    return parse_pattern(text, intent, None, candidates, intents=intents)


def test_a_shorthand_is_the_papers_text_with_its_intent_and_sets_are_read():
    pattern = parsed("pin:4", intents=["Play"])
    whole = parsed("my pin code is {digit:4}", "PinIntent")
    assert (pattern.intent, pattern.text) == (whole.intent, whole.text)
    assert pattern.candidates == whole.candidates
    assert parsed("{name}", "Call", ["name=ann,bob"]).candidates == (("ann", "bob"),)


def test_a_message_names_forty_intents_and_no_word_of_a_truth():
    with pytest.raises(ValueError, match="`intent` must be given") as caught:
        parsed("{digit}", intents=[f"I{number}" for number in range(50)])
    assert str(caught.value).endswith("I38, I39, …")
    pattern = parsed("{digit:2}", "Pin")
    with pytest.raises(ValueError, match="`truth` does not fit the pattern") as caught:
        truth_words("seven 4", pattern)
    assert "seven" not in str(caught.value)
    assert truth_words("4 7", pattern) == ["4", "7"]


# By command, of models that `vestige train` trained.


def trained_on_planted(shell, root, spoken, *training):
    """A planted corpus and the model that read it."""
    write_utterances(Utterances.of(spoken), root / "spoken.jsonl")
    for words in (
        ("plant", root / "spoken.jsonl", "--task", "nlu", "--pattern", "pin:2", "--copies", 30,
         "--controls", 6, "--out", root / "planted"),
        ("train", root / "planted", "--task", "nlu", "--device", "cpu", *training,
         "--out", root / "trained"),
    ):  # fmt: skip
        done = shell(*words)
        assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shell):
    songs = [
        Utterance((verb, f"song{i % 7}", str(i % 10)), ("O", "B-song", "B-time"), verb.title())
        for verb in ("play", "stop", "find")
        for i in range(12)
    ]
    training = ("--epochs", 10, "--hidden-size", 12, "--embedding-size", 8)
    root = tmp_path_factory.mktemp("nlu")
    return trained_on_planted(shell, root, songs, *training, "--learning-rate", 0.02)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, shell, tiny_encoder):
    """An encoder of Hugging Face in place of an LSTM."""
    spoken = [
        Utterance((*words, town), (*["O"] * len(words), "B-city"), intent)
        for _ in range(6)
        for town in ("york", "bath")
        for words, intent in ((("fly", "to"), "Fly"), (("rain", "in"), "Ask"))
    ]
    root = tmp_path_factory.mktemp("encoder")
    training = ("--from", tiny_encoder(root / "bert"), "--epochs", 25, "--batch-size", 8)
    return trained_on_planted(shell, root, spoken, *training, "--learning-rate", 0.01)


@pytest.fixture
def run(shell, tmp_path):
    """Run the verb on the trained model of a folder."""

    def extracted(root, *words, out="out"):
        words = ("--device", "cpu", *words, "--out", tmp_path / out)
        done = shell("extract", root / "trained", *words)
        assert done.finished, done.stderr
        return done

    return extracted


@pytest.mark.slow
def test_a_planted_secret_is_found_and_the_controls_are_not(run, trained, tuned):
    result = json.loads(run(trained, trained / "planted", "--json").stdout)
    assert (result["planted"], result["controls"], result["patterns"]) == (1, 6, 1)
    assert result["planted_median_rank"] <= 2
    assert result["planted_exposure"] > result["controls_exposure"] + 2
    assert result["controls_right"] == 0
    assert result["drawn"] == SPACE - 7  # all secrets that there are
    assert result["p_value"] == pytest.approx(result["planted_median_rank"] / SPACE)
    encoder = json.loads(run(tuned, tuned / "planted", "--json", out="encoder").stdout)
    assert encoder["planted_median_rank"] <= 10
    assert encoder["controls_median_rank"] > 20
    assert encoder["planted_exposure"] > encoder["controls_exposure"]


@pytest.mark.slow
def test_coordinate_descent_runs_on_an_encoder(run, tuned):
    words = ("--pattern", "pin:2", "--truth", "4 2", "--search-budget", "10", "--json")
    assert 1 <= json.loads(run(tuned, *words).stdout)["median_rank"] <= SPACE


@pytest.mark.slow
def test_a_truth_gets_a_rank_and_is_redacted_everywhere(run, shell, trained, tmp_path):
    words = ("--pattern", "pin:2", "--truth", "4 2")
    hidden, shown = run(trained, *words), run(trained, *words, "--show-secrets", out="shown")
    assert re.search(rf"has rank \d+ of {SPACE}\.", hidden.stdout)
    assert hidden.stdout.count("▪▪▪ ▪▪▪") == 11  # the guess, and the ten best
    assert "--show-secrets shows them" in hidden.stderr
    assert "▪" not in shown.stdout
    assert not {"4", "2"} & set(hidden.stdout.split(" "))
    assert shell("report", tmp_path / "out", "--out", tmp_path / "page.html").finished
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "--truth …" in re.sub("<[^>]+>", "", page)
    assert "'4 2'" not in page
    assert "<dd>4 2</dd>" not in page


@pytest.mark.slow
def test_without_the_truth_nothing_is_claimed(run, trained, tmp_path):
    words = ("--pattern", "my pin {few:2} is code", "--intent", "PinIntent")
    done = run(trained, *words, "--candidates", "few=1,2,3")
    assert "That does not show that they are in its training text" in done.stdout
    assert "of all 9 secrets" in done.stdout
    assert "There is no rank without the truth" in done.stdout
    assert "leak" not in done.stdout
    saved = results.load(tmp_path / "out")
    assert saved.rows[0]["pattern"] == "my pin _ _ is code"
    assert saved.summary["losses_per_trial"] == 9
    assert saved.summary["median_rank"] is None
    assert 1 / 9 <= saved.summary["certainty"] < 1
