"""A folder that is broken, or lies, is refused: one error that names it, and what to do instead.

One table for each kind of folder. Nothing is opened, run or allocated before it is checked.
"""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.damage import damaged, refusal
from tests.models.conftest import (
    TARGETS,
    edit_json,
    intent_slot_model,
    reseal,
    translator,
)
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied, ModelError, VestigeError
from vestige.models.checkpoints import load_intent_slot, load_model, load_seq2seq, save_model
from vestige.models.folders import fingerprint, sha256_of
from vestige.models.nlu_encoder import new_encoder
from vestige.training.new_models import new_model

SHORT = WordVocabulary(("<unk>", "<eos>"))


def write(name, content):
    """A breakage: a file with another content."""
    return lambda folder: (folder / name).write_bytes(content)


def lose(name):
    return lambda folder: (folder / name).unlink()


def cut(name, by=10):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-by])


def told(name, **changes):
    """A breakage: a JSON file with other fields."""
    return lambda folder: edit_json(folder / name, **changes)


def sealed(**changes):
    """A breakage: a description of ours with other fields, whose hash holds."""
    return lambda folder: reseal(folder, **changes)


def lacking(name, count=1, *, key=None):
    """A breakage: weights without the first few, or without one of them."""

    def lack(folder):
        weights = load_file(folder / name)
        gone = [key] if key else sorted(weights)[:count]
        remaining = {key: weight for key, weight in weights.items() if key not in gone}
        save_file(remaining, folder / name, metadata={"format": "pt"})

    return lack


def as_pickle(name, pickled):
    """A breakage: the weights as a pickle, which may run code."""

    def pickle(folder):
        torch.save(load_file(folder / name), folder / pickled)
        (folder / name).unlink()

    return pickle


def flip_last_bit(folder):
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def other_shapes(folder):
    weights = load_file(folder / "model.safetensors")
    save_file({key: value[:1] for key, value in weights.items()}, folder / "model.safetensors")
    reseal(folder)


def resealed_nonsense(folder):
    (folder / "model.safetensors").write_bytes(b"not what it says")
    reseal(folder)


def without_source(folder):
    description = json.loads((folder / "model.json").read_text())
    del description["source"]
    (folder / "model.json").write_text(json.dumps(description))


def other_vocabulary(folder):
    SHORT.save(folder)
    reseal(folder, vocabulary=SHORT.fingerprint())


def without_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


OURS = {
    "weights missing": (lose("model.safetensors"), "model.safetensors is missing"),
    "weights cut short": (cut("model.safetensors"), "SHA-256"),
    "one bit flipped": (flip_last_bit, "SHA-256"),
    "weights of other shapes": (other_shapes, "does not fit"),
    "no safetensors": (resealed_nonsense, "does not fit"),
    "description empty": (write("model.json", b""), "model.json is not"),
    "description a list": (write("model.json", b"[]"), "a list"),
    "description not text": (write("model.json", b"\xff\xfe"), "is not"),
    "description lacks keys": (write("model.json", b"{}"), "it is missing"),
    "format of the future": (sealed(format=99), "format 99"),
    "unknown architecture": (sealed(architecture="rnn"), "'rnn'"),
    "architecture a list": (sealed(architecture=[1]), "model.json"),
    "size not a number": (sealed(vocab_size="many"), "model.json"),
    "setting unknown": (sealed(config={"colour": 1}), "colour"),
    "setting impossible": (sealed(config={"layers": -1}), "layers"),
    "setting of another type": (sealed(config={"layers": "two"}), "fit"),
    "settings of another size": (sealed(config={"hidden_size": 3}), "fit"),
    "vocabulary missing": (lose("vocabulary.json"), "vocabulary"),
    "vocabulary cut short": (cut("vocabulary.json"), "vocabulary"),
    "vocabulary of another": (SHORT.save, "vocabulary"),
}
SHAPE = {"intents": ["Ask", "Tell"], "tags": ["O", "B-pin", "I-pin"], "embedding_size": 5}
SHAPE |= {"hidden_size": 4}
INTENTS = {
    "fewer tags": (sealed(config=SHAPE | {"tags": ["O", "B-pin"]}), "does not fit"),
    "more intents": (sealed(config=SHAPE | {"intents": ["Ask", "Tell", "Pay"]}), "does not fit"),
    "an intent twice": (sealed(config=SHAPE | {"intents": ["Ask", "Ask"]}), "all different"),
    "no tags": (sealed(config=SHAPE | {"tags": []}), "at least one"),
    "another size": (sealed(config=SHAPE | {"hidden_size": 5}), "does not fit"),
    "no layers": (sealed(config=SHAPE | {"layers": 0}), "layers"),
    "setting unknown": (sealed(config=SHAPE | {"colour": 1}), "does not fit"),
    "vocabulary of another": (SHORT.save, "is not the one"),
    "vocabulary of another, sealed": (other_vocabulary, "does not fit"),
}
PAIRS = {
    "no vocabulary of sources": (
        lose("source/vocabulary.json"),
        "the vocabulary in .*source cannot be read",
    ),
    "another vocabulary of sources": (
        lambda folder: TARGETS.save(folder / "source"),
        "is not the one in model.json",
    ),
    "no word of sources": (without_source, "is not the one in model.json"),
}
HUGGING_FACE = {
    "pickle": (as_pickle("model.safetensors", "pytorch_model.bin"), "pickle"),
    "no weights": (lose("model.safetensors"), "no weights"),
    "weights cut short": (cut("model.safetensors", 100), "cannot be loaded"),
    "weights empty": (write("model.safetensors", b""), "cannot be loaded"),
    "a layer missing": (
        lacking("model.safetensors", 3),
        "do not fit|needs .* weights; its files have",
    ),
    "no configuration in it": (write("config.json", b"{}"), "cannot be loaded"),
    "configuration cut short": (cut("config.json", 100), "is not JSON"),
    "unknown architecture": (told("config.json", model_type="nothing"), "cannot be loaded"),
    "another size": (
        told("config.json", hidden_size=8, n_embd=8),
        "(cannot be loaded|do not fit)",
    ),
    "encoder-decoder": (told("config.json", is_encoder_decoder=True), "encoder-decoder"),
    "tokenizer missing": (without_tokenizer, "tokenizer"),
    "tokenizer cut short": (cut("tokenizer.json", 100), "tokenizer"),
}
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER = {
    "pickle": (as_pickle(WEIGHTS, "adapter_model.bin"), "pickle"),
    "cut short": (cut(WEIGHTS), "does not fit its base"),
    "a matrix missing": (lacking(WEIGHTS), "missing adapter keys"),
    "another rank": (told(CONFIG, r=3), "does not fit its base"),
    "another architecture": (told(CONFIG, target_modules=["nowhere"]), "does not fit its base"),
    "description cut short": (cut(CONFIG), "is not JSON"),
    "of an unknown kind": (told(CONFIG, peft_type="MAGIC"), "does not edit_json an adapter"),
    "a prompt": (told(CONFIG, peft_type="PROMPT_TUNING"), "adapter"),
    "no base named": (told(CONFIG, base_model_name_or_path=None), "names no base"),
    "base gone": (told(CONFIG, base_model_name_or_path="/nowhere/at/all"), "not at /nowhere"),
    "its own base": (
        lambda d: edit_json(d / CONFIG, base_model_name_or_path=str(d)),
        "is an adapter, not a whole model",
    ),
    **{
        what: (told(CONFIG, **changes), r"adapter_config\.json")
        for what, changes in {
            "a pattern that repeats repetitions": {"target_modules": r"(.*a)*b"},
            "a pattern that repeats too often": {"target_modules": r".*.*.*.*.*x"},
            "patterns of ranks": {"rank_pattern": {r"(a+)+": 2}},
            "a rank beyond all": {"r": 10**12},
            "no rank": {"r": 0},
            "half a rank": {"r": 1.5},
            "a scale that is no number": {"lora_alpha": "two"},
            "modules of another type": {"target_modules": [1, 2]},
            "a module of another package": {
                "megatron_config": {"a": 1},
                "megatron_core": "antigravity",
            },
            "a base that is a list": {"base_model_name_or_path": ["a"]},
            "another kind": {"peft_type": 3},
        }.items()
    },
}
HEADS = {
    "no heads": (lose("heads.safetensors"), "heads.safetensors"),
    "heads cut short": (write("heads.safetensors", b"ab"), "does not fit"),
    "a head's part missing": (
        lacking("heads.safetensors", key="intent_head.bias"),
        "(?s)does not fit.*bias",
    ),
    "another number of labels": (told("intent_slot.json", intents=["Fly"]), "does not fit"),
    "a label twice": (told("intent_slot.json", tags=["O", "O", "B-city"]), "all different"),
    "labels are no list": (
        told("intent_slot.json", tags=3),
        r"intent_slot\.json has unexpected",
    ),
    "no JSON": (write("intent_slot.json", b"{"), r"intent_slot\.json is not"),
    "another format": (told("intent_slot.json", format=2), "format 2"),
    "no weights": (lose("model.safetensors"), "model.safetensors|missing"),
    "no tokenizer": (lose("tokenizer.json"), "tokenizer"),
}
READERS = {
    "lstm": (load_model, OURS),
    "gpt2": (load_model, HUGGING_FACE),
    "llama": (load_model, HUGGING_FACE),
    "gpt2 adapter": (load_model, ADAPTER),
    "llama adapter": (load_model, ADAPTER),
    "intents": (load_intent_slot, INTENTS),
    "pairs": (load_seq2seq, PAIRS),
    "encoder": (load_intent_slot, HEADS),
}


@pytest.fixture(scope="session")
def sound(shared, words, new_bert, tmp_path_factory):
    """A folder of each kind as it is saved, to be copied and broken."""
    directory = tmp_path_factory.mktemp("sound")
    names = ("lstm", "gru", "transformer", "table", *READERS)
    kinds = {name: shared[name] for name in names if name not in ("intents", "pairs", "encoder")}
    kinds |= {"intents": intent_slot_model(words), "pairs": translator(), "encoder": new_bert}
    for name, model in kinds.items():
        save_model(model, directory / name)
    return directory


@pytest.fixture
def copied(sound, tmp_path):
    return lambda name: Path(shutil.copytree(sound / name, tmp_path / name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name, (_, table) in READERS.items() for what in table]
)
@pytest.mark.filterwarnings("ignore")  # whatever transformers and PEFT say before they give up
def test_a_broken_folder_is_refused_with_the_remedy(copied, name, what):
    read, table = READERS[name]
    (breakage, says), folder = table[what], copied(name)
    breakage(folder)
    with pytest.raises(VestigeError, match=f"(?s){says}") as caught:
        read(folder)
    assert str(folder) in caught.value.problem
    assert caught.value.remedy


def test_a_model_of_another_kind_is_told_apart(sound, encoders, folders):
    for name, read, error, says in (
        ("intents", load_model, AccessDenied, "predicts no next words"),
        ("encoder", load_model, AccessDenied, "predicts no next words"),
        ("pairs", load_model, AccessDenied, "needs a source"),
        ("pairs", load_intent_slot, ModelError, "a sequence-to-sequence model and has no intents"),
        ("table", load_intent_slot, ModelError, "is a language model and has no intents"),
        ("gpt2", load_intent_slot, ModelError, "is a language model and has no intents"),
        ("lstm", load_seq2seq, ModelError, "is a language model and takes no source"),
    ):
        with pytest.raises(error, match=says):
            read(sound / name, device="cpu")
    for name in folders.values():
        with pytest.raises(ModelError, match="is not an encoder") as caught:
            new_encoder(name, ["a"], ["O"], seed=0)
        assert str(name) in caught.value.problem
        assert "encoder" in caught.value.remedy


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("kept")
    for name, says in (
        ("empty", r"has no model\.json"),
        ("file", "is a file"),
        ("missing", "does not exist"),
    ):
        for read in (load_model, load_intent_slot, load_seq2seq, fingerprint, sha256_of):
            with pytest.raises(ModelError, match=says):
                read(tmp_path / name)
    model = translator()
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ModelError, match="cannot be saved"):
            save_model(model, target)
    assert (tmp_path / "file").read_text() == "kept"


HUGE = {
    "lstm": {"hidden_size": 2**20, "layers": 1000},
    "gru": {"embedding_size": 2**20},
    "transformer": {"hidden_size": 2**20, "heads": 2, "feed_forward": 2**20},
    "table": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_every_field_of_a_description_is_checked(name, copied, memory_limit):
    file, messages = copied(name) / "model.json", []
    for what, content in damaged(json.loads(file.read_text())):
        file.write_text(json.dumps(content))
        messages.append(refusal(what, lambda: load_model(file.parent, device="cpu")))
    assert len(messages) > 100
    assert sum(message is not None for message in messages) > 0.6 * len(messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_a_size_that_the_weights_do_not_fill_is_refused(name, copied, memory_limit):
    folder = copied(name)
    config = json.loads((folder / "model.json").read_text())["config"]
    sizes = [
        {"layers": 10**6},
        {"layers": 1e6, "hidden_size": 2.5},
        {"hidden_size": 10**18},
        {"hidden_size": "12"},
        {"heads": 3},
    ]
    changes = [{"config": config | size} for size in sizes] if name != "table" else []
    for change in ({"config": config | HUGE[name], "vocab_size": 2**20}, *changes):
        reseal(folder, **change)
        with pytest.raises(ModelError, match=r"model\.(json|safetensors)"):
            load_model(folder, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", [*HUGE, "gpt2", "gpt2 adapter", "pairs"])
def test_weights_that_are_no_numbers_are_refused(name, value, copied):
    folder = copied(name)
    [file] = folder.glob("*.safetensors")
    weights = load_file(file)
    weights[max(weights, key=lambda key: weights[key].numel())].view(-1)[0] = value
    save_file(weights, file, metadata={"format": "pt"})
    if (folder / "model.json").exists():
        reseal(folder)
    with pytest.raises(ModelError, match="NaN or infinite"):
        (load_seq2seq if name == "pairs" else load_model)(folder, device="cpu")


def test_a_model_larger_than_memory_is_refused_with_an_estimate(shared):
    model = shared["lstm"]
    with pytest.raises(ValueError, match=r"weights would take [\d,.]+ GiB of memory"):
        new_model(model.vocabulary, type(model.config)(hidden_size=2**20, layers=9), seed=0)
    torch.manual_seed(4)
    drawn = torch.rand(3)
    torch.manual_seed(4)
    new_model(model.vocabulary, model.config, seed=0)
    assert torch.equal(torch.rand(3), drawn)  # the estimate leaves chance as it was
