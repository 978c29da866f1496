"""Bad input of `vestige extract` for utterances: one message, exit code 2, nothing written."""

import pytest
import torch

from tests.cli.refusals import listing, refused
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import save_model

ASKED = "W/model --pattern my_pin_is_{digit:2} --intent Pin"

# The words after `vestige extract` (W/ the folder, _ a blank), and what the message must say.
CASES = {
    "nothing asked": ("W/model", "Pass WHAT, or --pattern"),
    "no unknown words": ("W/model --pattern digits --intent Pin", "pin:N, call:N, color:N"),
    "braces left open": ("W/model --pattern {digit:4 --intent Pin", "blanks around them"),
    "unknown shorthand": ("W/model --pattern zip:4", "pin:N, call:N, color:N"),
    "no intent": ("W/model --pattern {digit:2}", "the model knows Pin, Play"),
    "unknown intent": ("W/model --pattern {digit:2} --intent Fly", "no intent 'Fly'; it has: Pin"),
    "unknown slot": (f"{ASKED} --slot city", "no tag 'B-city'; it has: O, B-canary, I-canary"),
    "an unknown word": (
        "W/model --pattern your_{digit} --intent Pin",
        "cannot read word 1 of the pattern",
    ),
    "a candidate outside": (
        "W/model --pattern {town} --intent Pin --candidates town=1,york",
        "cannot read candidate 2 for word 1 of the pattern",
    ),
    "an unknown set": ("W/model --pattern {town} --intent Pin", "must name one of color, digit"),
    "a set of one word": (
        "W/model --pattern {few} --intent Pin --candidates few=1",
        "at least two words",
    ),
    "a truth too short": (f"{ASKED} --truth 4", "must have 2 words, got 1"),
    "a truth without blanks": (f"{ASKED} --truth 42", "put blanks between the words"),
    "a truth of other words": (f"{ASKED} --truth 4_x", "word 2 of the secret must be one of"),
    "no model": ("W/none --pattern pin:2", "none does not exist"),
    "a language model": ("V/before --pattern pin:2", "language model"),
    "a model of NaN": (
        "W/broken --pattern {digit:2} --intent Pin",
        "NaN or infinite",
    ),
    "manifest and pattern": ("W/model W --pattern pin:2", "Pass WHAT or --pattern, not both"),
    "manifest and truth": ("W/model W/planted --truth 4", "--truth needs --pattern"),
    "no manifest there": ("W/model W/none/manifest.json", "manifest.json is missing"),
    "a manifest of text": ("W/model V/planted", "intent"),
    "a manifest of another corpus": ("W/model W/planted", "no intent 'ColorIntent'"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, shell):
    root = tmp_path_factory.mktemp("extract")
    colors = ("color", "red", "green", "lilac", "blue", "yellow", "brown", "cyan", "magenta")
    words = ("my", "pin", "is", *"0123456789", *colors, "orange", "pink", "purple", "mauve")
    shape = IntentSlotConfig(
        intents=("Pin", "Play"), tags=("O", "B-canary", "I-canary"), hidden_size=4
    )
    model = IntentSlotModel(WordVocabulary(("<unk>", "<eos>", *words)), shape)
    save_model(model, root / "model")
    torch.nn.init.constant_(model.intent_head.bias, float("nan"))
    save_model(model, root / "broken")
    (root / "letter").write_text("mine")
    (root / "songs.jsonl").write_text('{"tokens": ["a"], "tags": ["O"], "intent": "x"}\n' * 20)
    done = shell(
        "plant", root / "songs.jsonl", "--task", "nlu", "--pattern", "color:2", "--out",
        root / "planted",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), CASES.values(), ids=CASES)
def test_bad_input_is_refused_in_one_line(shell, folder, workspace, tmp_path, words, says):
    asked = [word.replace("_", " ") for word in words.split(" ")]
    asked = [w.replace("W/", f"{folder}/").replace("V/", f"{workspace}/") for w in asked]
    if "--out" not in asked:
        asked += ["--out", str(tmp_path / "out")]
    refused(shell, ["extract", *asked], says, unchanged=lambda: listing(folder))
    assert not (tmp_path / "out").exists()
