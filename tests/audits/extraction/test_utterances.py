"""`extract_nlu` finds what an intent-and-slot model heard, in memory as in files."""

import pytest
import torch

from vestige import results
from vestige.attacks.extraction.coordinate_descent import CoordinateDescent
from vestige.attacks.extraction.extraction_result import Extraction
from vestige.attacks.extraction.secret_audit import SecretAudit
from vestige.data.secret_canaries import secret_canaries
from vestige.data.secret_manifest import plant_secrets
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import save_model
from vestige.workflows.extract_nlu import ExtractionTarget, extract_nlu

PIN = ExtractionTarget(pattern="pin {digit:2}", intent="Pin")
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


def test_a_pattern_gives_the_guess_of_least_loss(model):
    found = extract_nlu(model, PIN)
    assert isinstance(found, Extraction)
    assert (found.search, found.evaluated) == ("exact", SPACE)
    [secret] = found.secrets
    assert list(secret.losses) == sorted(secret.losses)


def test_the_truth_has_the_rank_that_counting_gives(model):
    every = extract_nlu(model, PIN).secrets[0]
    truth = " ".join(every.guesses[2])
    target = ExtractionTarget(pattern="pin {digit:2}", intent="Pin", truth=truth)
    [secret] = extract_nlu(model, target).secrets
    assert secret.rank.rank == 3
    assert secret.truth_loss == pytest.approx(every.losses[2])


def test_prefix_and_slots_are_the_pattern(model):
    parts = ExtractionTarget(prefix="pin", slots="{digit:2}", intent="Pin")
    one, other = (extract_nlu(model, target).secrets[0] for target in (PIN, parts))
    assert one.guesses == other.guesses


def test_a_manifest_in_memory_is_audited(model, manifest, tmp_path):
    found = extract_nlu([model, network(1)], manifest=manifest, controls=20)
    assert isinstance(found, SecretAudit)
    summary = found.summary()
    assert (summary["planted"], summary["models"]) == (1, 2)
    manifest.save(tmp_path / "manifest.json")
    for number in (0, 1):
        save_model(network(number), tmp_path / f"{number}")
    paths = [tmp_path / "0", tmp_path / "1"]
    again = extract_nlu(paths, manifest=tmp_path, controls=20, device="cpu")
    assert [row["rank"] for row in again.rows()] == [row["rank"] for row in found.rows()]
    assert set(again.record["models"]) == {"model", "model 2"}
    assert again.record["data"] == {"manifest": manifest.sha256}


def test_an_attack_may_have_settings_of_its_own(model):
    found = extract_nlu(model, PIN, attack=CoordinateDescent(restarts=1))
    assert found.search == "coordinate"


def test_a_reference_is_loaded_beside_the_model(model):
    found = extract_nlu(model, PIN, objective="calibrated", reference=[model])
    assert found.secrets[0].losses[0] == pytest.approx(0, abs=1e-6)
    assert set(found.record["models"]) == {"model", "reference 1"}


def test_the_record_repeats_the_call(model, tmp_path):
    found = extract_nlu(model, PIN, budget=50, sample=10)
    found.save(tmp_path / "run")
    said = results.load(tmp_path / "run").run
    assert said["arguments"] == {
        "model": said["arguments"]["model"],
        "pattern": "pin {digit:2}",
        "intent": "Pin",
        "budget": 50,
        "sample": 10,
    }
    assert said["configuration"]["controls"] is None


REFUSED = {
    "nothing asked": ({}, "what to ask must be given"),
    "no unknown words": ({"target": ExtractionTarget(prefix="pin")}, "given by `slots`"),
    "pattern and prefix": (
        {"target": ExtractionTarget(pattern="pin:2", prefix="my")},
        "`prefix` must be left out with `pattern`",
    ),
    "no intent": ({"target": ExtractionTarget(pattern="pin {digit}")}, "`intent` must be given"),
    "controls of nothing": ({"target": PIN, "controls": 5}, "`controls` must be left out"),
    "a reference too many": ({"target": PIN, "reference": ["x"]}, "`reference` must be given"),
    "a truth too short": (
        {"target": ExtractionTarget(pattern="pin {digit:2}", intent="Pin", truth="4")},
        "`truth` does not fit",
    ),
}


@pytest.mark.parametrize(("settings", "says"), REFUSED.values(), ids=REFUSED)
def test_settings_that_do_not_fit_are_refused_by_name(model, settings, says):
    with pytest.raises(ValueError, match=says):
        extract_nlu(model, **settings)


def test_a_manifest_says_what_to_ask(model, manifest):
    with pytest.raises(ValueError, match="`pattern` must be left out with `manifest`"):
        extract_nlu(model, PIN, manifest=manifest)
    with pytest.raises(ValueError, match="`model` must be one without `manifest`, got 2"):
        extract_nlu([model, model], PIN)
