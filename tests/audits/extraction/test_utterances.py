"""`extract` finds what an intent-and-slot model heard, in memory as by command, and hides it."""

import pytest
import torch

from vestige import extract, results
from vestige.audits.extraction.utterances import pattern_of, words_of
from vestige.data.canaries.utterances import plant_secrets, secret_canaries
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
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


@pytest.fixture(scope="module")
def model():
    return network(0)


@pytest.fixture(scope="module")
def manifest():
    songs = Utterances.of([Utterance(("play", "it"), ("O", "O"), "Play")] * 20)
    canaries = secret_canaries("pin {digit:2}", intent="Pin", copies=3, controls=4, seed=0)
    return plant_secrets(songs, songs, canaries, seed=0)[2]


def test_a_pattern_gives_the_guess_of_least_loss_and_the_truth_the_rank_of_counting(model):
    found = extract(model, **PIN)
    assert found.kind == "Extraction"
    assert (found.summary["search"], found.summary["losses_per_trial"]) == ("exact", SPACE)
    [every] = found.rows
    assert every["losses"] == sorted(every["losses"])
    [row] = extract(model, **PIN, truth=every["guesses"][2]).rows
    assert row["rank"] == 3
    assert row["truth_loss"] == pytest.approx(every["losses"][2])


def test_a_manifest_in_memory_is_audited(model, manifest, tmp_path):
    found = extract(model, manifest, controls=20)
    assert (found.kind, found.summary["planted"]) == ("SecretAudit", 1)
    manifest.save(tmp_path / "manifest.json")
    save_model(network(0), tmp_path / "0")
    again = extract(tmp_path / "0", tmp_path, controls=20, device="cpu")
    assert [row["rank"] for row in again.rows] == [row["rank"] for row in found.rows]
    assert set(again.record["models"]) == {"model"}
    assert again.record["data"] == {"manifest": manifest.sha256}


def test_the_record_repeats_the_call_and_its_settings_hold_no_truth(model, tmp_path):
    found = extract(model, **PIN, truth="4 7", search_budget=50, rank_sample=10)
    found.save(tmp_path / "run")
    run = results.load(tmp_path / "run").run
    given = {"pattern": "pin {digit:2}", "intent": "Pin", "search_budget": 50, "rank_sample": 10}
    assert given.items() <= run["arguments"].items()
    assert run["configuration"]["controls"] is None
    assert run["configuration"]["truth"] is None


def test_arguments_that_do_not_fit_are_refused_by_their_names(model, manifest):
    with pytest.raises(ValueError, match="Pass `what`, or `pattern`"):
        extract(model)
    with pytest.raises(ValueError, match="Pass `what` or `pattern`, not both"):
        extract(model, manifest, **PIN)
    with pytest.raises(ValueError, match="`controls` needs a manifest of utterances"):
        extract(model, **PIN, controls=5)
    with pytest.raises(ValueError, match="`truth` needs `pattern`"):
        extract(model, manifest, truth="4 7")


# The pattern, as options give it.


def parsed(text, intent=None, candidates=(), intents=()):
    return pattern_of(text, intent, None, candidates, intents=intents)


def test_a_shorthand_is_the_papers_text_with_its_intent():
    pattern = parsed("pin:4", intents=["Play"])
    whole = parsed("my pin code is {digit:4}", "PinIntent")
    assert (pattern.intent, pattern.text) == (whole.intent, whole.text)
    assert pattern.candidates == whole.candidates


def test_sets_of_candidates_are_read_and_an_unused_one_is_refused():
    sets = ["name=ann,bob"]
    assert parsed("{name}", "Call", sets).candidates == (("ann", "bob"),)
    with pytest.raises(ValueError, match="named by the unknown words, got 'name'"):
        parsed("{digit}", "Call", sets)


def test_forty_intents_are_named_where_none_was_given():
    names = [f"I{number}" for number in range(50)]
    with pytest.raises(ValueError, match="`intent` must be given") as caught:
        parsed("{digit}", intents=names)
    assert str(caught.value).endswith("I38, I39, …")


def test_a_truth_that_does_not_fit_is_refused_without_its_words():
    pattern = parsed("{digit:2}", "Pin")
    with pytest.raises(ValueError, match="`truth` does not fit the pattern") as caught:
        words_of("seven 4", pattern)
    assert "seven" not in str(caught.value)
    assert words_of("4 7", pattern) == ["4", "7"]
