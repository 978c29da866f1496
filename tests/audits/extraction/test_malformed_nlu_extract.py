"""Bad input of `vestige extract-nlu`: one clear message, exit code 2, nothing written."""

import pytest
import torch

from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import save_model

ASKED = "W/model --prefix my_pin_is --slots {digit:2} --intent Pin"

# The words after `vestige extract-nlu` (W/ the folder, _ a blank), and what the message must say.
CASES = {
    "nothing asked": ("W/model", "--prefix and --slots, --pattern such as pin:4, or --manifest"),
    "no unknown words": ("W/model --prefix my_pin_is --intent Pin", "must be given by --slots"),
    "no place in them": ("W/model --slots digits --intent Pin", "such as {digit:4}"),
    "braces left open": ("W/model --slots {digit:4 --intent Pin", "blanks around them"),
    "pattern and prefix": ("W/model --pattern pin:4 --prefix my", "--prefix must be left out"),
    "unknown shorthand": ("W/model --pattern zip:4", "pin:N, call:N, color:N"),
    "no intent": ("W/model --slots {digit:2}", "the model knows Pin, Play"),
    "unknown intent": ("W/model --slots {digit:2} --intent Fly", "no intent 'Fly'; it has: Pin"),
    "an empty intent": ("W/model --slots {digit:2} --intent ", "intent and slot must be names"),
    "unknown slot": (f"{ASKED} --slot city", "no tag 'B-city'; it has: O, B-canary, I-canary"),
    "an unknown word": (
        "W/model --slots your_{digit} --intent Pin",
        "cannot read word 1 of the pattern",
    ),
    "a candidate outside": (
        "W/model --slots {town} --intent Pin --candidates town=1,york",
        "cannot read candidate 2 for word 1 of the pattern",
    ),
    "an unknown set": ("W/model --slots {town} --intent Pin", "must name one of color, digit"),
    "an unused set": (f"{ASKED} --candidates town=1,2", "'town', which"),
    "a set of one word": (
        "W/model --slots {few} --intent Pin --candidates few=1",
        "at least two words",
    ),
    "a set without a name": (f"{ASKED} --candidates =1,2", "name=word,word"),
    "a truth too short": (f"{ASKED} --truth 4", "must have 2 words, got 1"),
    "a truth without blanks": (f"{ASKED} --truth 42", "put blanks between the words"),
    "a truth of other words": (f"{ASKED} --truth 4_x", "word 2 of the secret must be one of"),
    "a reference and no calibration": (f"{ASKED} --reference W/model", "got 1 with 'joint'"),
    "calibration without one": (f"{ASKED} --objective calibrated", "got 0 with 'calibrated'"),
    "a reference nowhere": (
        f"{ASKED} --objective calibrated --reference W/none",
        "none does not exist",
    ),
    "vectors calibrated": (
        f"{ASKED} --objective calibrated --reference W/model --attack embedding",
        "reference models have other vectors",
    ),
    "exact beyond the budget": (f"{ASKED} --attack exact --budget 99", "budget of 99"),
    "no budget": (f"{ASKED} --budget 0", "--budget"),
    "too many guesses": (f"{ASKED} --top 11", "--top"),
    "an unknown attack": (f"{ASKED} --attack magic", "--attack must be one of auto, exact"),
    "an unknown device": (f"{ASKED} --device abacus", "abacus"),
    "no model": ("W/none --pattern pin:2", "none does not exist"),
    "a file for a model": ("W/letter --pattern pin:2", "letter is a file"),
    "a language model": ("V/before --pattern pin:2", "language model"),
    "a model of not-a-numbers": ("W/broken --slots {digit:2} --intent Pin", "that are not finite"),
    "manifest and pattern": ("W/model --manifest W --pattern pin:2", "--pattern must be left out"),
    "manifest and truth": ("W/model --manifest W --truth 4", "--truth must be left out"),
    "no manifest there": ("W/model --manifest W/none", "none is missing"),
    "a manifest of text": ("W/model --manifest V/planted", "vestige exposure"),
    "a manifest of another corpus": ("W/model --manifest W/planted", "no intent 'ColorIntent'"),
    "out exists": (f"{ASKED} --out W/model", "another --out"),
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


def listing(root):
    return {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}


@pytest.mark.parametrize(("words", "says"), CASES.values(), ids=CASES)
def test_bad_input_is_refused_in_one_line(shell, folder, workspace, tmp_path, words, says):
    asked = [word.replace("_", " ") for word in words.split(" ")]
    asked = [w.replace("W/", f"{folder}/").replace("V/", f"{workspace}/") for w in asked]
    if "--out" not in asked:
        asked += ["--out", str(tmp_path / "out")]
    before = listing(folder)
    done = shell("extract-nlu", *asked)
    assert done.exit_code == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert says in said
    assert "Traceback" not in said
    assert done.stdout == ""
    assert listing(folder) == before
    assert not (tmp_path / "out").exists()
