"""Damaged model folders are refused by one error that names the folder and a remedy."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.damage import damaged, refusal
from tests.models.conftest import TARGETS, edit_json, intent_slot_model, reseal, translator
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied, ModelError, VestigeError
from vestige.models.checkpoints import load_intent_slot, load_model, load_seq2seq, save_model
from vestige.models.folders import fingerprint, sha256_of
from vestige.models.nlu_encoder import new_encoder
from vestige.training.new_models import new_model

SHORT = WordVocabulary(("<unk>", "<eos>"))
MODEL, CONFIG = "model.safetensors", "config.json"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
HEADS, HEADS_CONFIG = "heads.safetensors", "intent_slot.json"

# Ways to damage a folder


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def delete(name):
    return lambda folder: (folder / name).unlink()


def truncate(name, by=10):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-by])


def edit(name, **changes):
    return lambda folder: edit_json(folder / name, **changes)


def sealed(**changes):
    """Change model.json, with a correct hash of the weights."""
    return lambda folder: reseal(folder, **changes)


def without(name, count=1, *, key=None):
    """Remove the first few weights, or one by name."""

    def remove(folder):
        weights = load_file(folder / name)
        removed = [key] if key else sorted(weights)[:count]
        remaining = {key: weight for key, weight in weights.items() if key not in removed}
        save_file(remaining, folder / name, metadata={"format": "pt"})

    return remove


def as_pickle(name, pickled):
    def pickle(folder):
        torch.save(load_file(folder / name), folder / pickled)
        (folder / name).unlink()

    return pickle


def flip_last_bit(folder):
    content = bytearray((folder / MODEL).read_bytes())
    content[-1] ^= 1
    (folder / MODEL).write_bytes(content)


def other_shapes(folder):
    weights = load_file(folder / MODEL)
    save_file({key: value[:1] for key, value in weights.items()}, folder / MODEL)
    reseal(folder)


def invalid_weights(folder):
    (folder / MODEL).write_bytes(b"not safetensors")
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


OF_LSTM = {
    "weights missing": (delete(MODEL), "model.safetensors is missing"),
    "weights truncated": (truncate(MODEL), "SHA-256"),
    "one bit flipped": (flip_last_bit, "SHA-256"),
    "weights of other shapes": (other_shapes, "does not fit"),
    "weights not safetensors": (invalid_weights, "does not fit"),
    "description empty": (write("model.json", b""), "model.json is not"),
    "description a list": (write("model.json", b"[]"), "a list"),
    "description not text": (write("model.json", b"\xff\xfe"), "is not"),
    "description without keys": (write("model.json", b"{}"), "it is missing"),
    "future format": (sealed(format=99), "format 99"),
    "unknown architecture": (sealed(architecture="rnn"), "'rnn'"),
    "architecture a list": (sealed(architecture=[1]), "model.json"),
    "size not a number": (sealed(vocab_size="many"), "model.json"),
    "unknown setting": (sealed(config={"colour": 1}), "colour"),
    "impossible setting": (sealed(config={"layers": -1}), "layers"),
    "setting of another type": (sealed(config={"layers": "two"}), "fit"),
    "settings of another size": (sealed(config={"hidden_size": 3}), "fit"),
    "vocabulary missing": (delete("vocabulary.json"), "vocabulary"),
    "vocabulary truncated": (truncate("vocabulary.json"), "vocabulary"),
    "vocabulary of another model": (SHORT.save, "vocabulary"),
}
SETTINGS = {"intents": ["Ask", "Tell"], "tags": ["O", "B-pin", "I-pin"], "embedding_size": 5}
SETTINGS |= {"hidden_size": 4}
OF_INTENTS = {
    "fewer tags": (sealed(config=SETTINGS | {"tags": ["O", "B-pin"]}), "does not fit"),
    "more intents": (sealed(config=SETTINGS | {"intents": ["Ask", "Tell", "Pay"]}), "does not fit"),
    "repeated intent": (sealed(config=SETTINGS | {"intents": ["Ask", "Ask"]}), "all different"),
    "no tags": (sealed(config=SETTINGS | {"tags": []}), "at least one"),
    "no layers": (sealed(config=SETTINGS | {"layers": 0}), "layers"),
    "vocabulary of another model, sealed": (other_vocabulary, "does not fit"),
}
OF_PAIRS = {
    "source vocabulary missing": (
        delete("source/vocabulary.json"),
        "the vocabulary in .*source cannot be read",
    ),
    "another source vocabulary": (
        lambda folder: TARGETS.save(folder / "source"),
        "is not the one in model.json",
    ),
    "source vocabulary undescribed": (without_source, "is not the one in model.json"),
}
OF_HUGGING_FACE = {
    "pickle": (as_pickle(MODEL, "pytorch_model.bin"), "pickle"),
    "weights missing": (delete(MODEL), "no weights"),
    "weights truncated": (truncate(MODEL, 100), "cannot be loaded"),
    "weights empty": (write(MODEL, b""), "cannot be loaded"),
    "layer missing": (without(MODEL, 3), "do not fit|needs .* weights; its files have"),
    "empty configuration": (write(CONFIG, b"{}"), "cannot be loaded"),
    "configuration truncated": (truncate(CONFIG, 100), "is not JSON"),
    "unknown architecture": (edit(CONFIG, model_type="nothing"), "cannot be loaded"),
    "another size": (edit(CONFIG, hidden_size=8, n_embd=8), "(cannot be loaded|do not fit)"),
    "encoder-decoder": (edit(CONFIG, is_encoder_decoder=True), "encoder-decoder"),
    "tokenizer missing": (without_tokenizer, "tokenizer"),
    "tokenizer truncated": (truncate("tokenizer.json", 100), "tokenizer"),
}
OF_ADAPTER = {
    "pickle": (as_pickle(ADAPTER, "adapter_model.bin"), "pickle"),
    "truncated": (truncate(ADAPTER), "does not fit its base"),
    "matrix missing": (without(ADAPTER), "missing adapter keys"),
    "another rank": (edit(ADAPTER_CONFIG, r=3), "does not fit its base"),
    "other modules": (edit(ADAPTER_CONFIG, target_modules=["nowhere"]), "does not fit its base"),
    "configuration truncated": (truncate(ADAPTER_CONFIG), "is not JSON"),
    "unknown kind": (edit(ADAPTER_CONFIG, peft_type="MAGIC"), "does not describe an adapter"),
    "prompt tuning": (edit(ADAPTER_CONFIG, peft_type="PROMPT_TUNING"), "adapter"),
    "unnamed base": (edit(ADAPTER_CONFIG, base_model_name_or_path=None), "names no base"),
    "missing base": (edit(ADAPTER_CONFIG, base_model_name_or_path="/nowhere"), "not at /nowhere"),
    "base is the adapter": (
        lambda folder: edit_json(folder / ADAPTER_CONFIG, base_model_name_or_path=str(folder)),
        "is an adapter, not a whole model",
    ),
}
HOSTILE_SETTINGS = {
    "pattern with nested repetition": {"target_modules": r"(.*a)*b"},
    "pattern with many repetitions": {"target_modules": r".*.*.*.*.*x"},
    "rank pattern with nested repetition": {"rank_pattern": {r"(a+)+": 2}},
    "huge rank": {"r": 10**12},
    "zero rank": {"r": 0},
    "fractional rank": {"r": 1.5},
    "scale not a number": {"lora_alpha": "two"},
    "modules of another type": {"target_modules": [1, 2]},
    "module of another package": {"megatron_config": {"a": 1}, "megatron_core": "antigravity"},
    "base is a list": {"base_model_name_or_path": ["a"]},
    "kind is a number": {"peft_type": 3},
}
OF_ADAPTER |= {
    name: (edit(ADAPTER_CONFIG, **changes), r"adapter_config\.json")
    for name, changes in HOSTILE_SETTINGS.items()
}
OF_ENCODER = {
    "heads missing": (delete(HEADS), "heads.safetensors"),
    "heads truncated": (write(HEADS, b"ab"), "does not fit"),
    "part of a head missing": (without(HEADS, key="intent_head.bias"), "(?s)does not fit.*bias"),
    "another number of labels": (edit(HEADS_CONFIG, intents=["Fly"]), "does not fit"),
    "repeated label": (edit(HEADS_CONFIG, tags=["O", "O", "B-city"]), "all different"),
    "labels not a list": (edit(HEADS_CONFIG, tags=3), r"intent_slot\.json has unexpected"),
    "description not JSON": (write(HEADS_CONFIG, b"{"), r"intent_slot\.json is not"),
    "another format": (edit(HEADS_CONFIG, format=2), "format 2"),
    "weights missing": (delete(MODEL), "model.safetensors|missing"),
    "tokenizer missing": (delete("tokenizer.json"), "tokenizer"),
}
READERS = {
    "lstm": (load_model, OF_LSTM),
    "gpt2": (load_model, OF_HUGGING_FACE),
    "llama": (load_model, OF_HUGGING_FACE),
    "gpt2 adapter": (load_model, OF_ADAPTER),
    "llama adapter": (load_model, OF_ADAPTER),
    "intents": (load_intent_slot, OF_INTENTS),
    "pairs": (load_seq2seq, OF_PAIRS),
    "encoder": (load_intent_slot, OF_ENCODER),
}


@pytest.fixture(scope="session")
def saved(shared, words, new_bert, tmp_path_factory):
    """A folder of each kind, to be copied and damaged."""
    directory = tmp_path_factory.mktemp("saved")
    models = {"intents": intent_slot_model(words), "pairs": translator(), "encoder": new_bert}
    for name in ("gru", "transformer", "table", *READERS):
        save_model(models.get(name) or shared[name], directory / name)
    return directory


@pytest.fixture
def copied(saved, tmp_path):
    return lambda name: Path(shutil.copytree(saved / name, tmp_path / name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage"), [(name, damage) for name, (_, table) in READERS.items() for damage in table]
)
@pytest.mark.filterwarnings("ignore")  # transformers and PEFT may warn before they fail
def test_a_damaged_folder_is_refused_with_a_remedy(copied, name, damage):
    load, table = READERS[name]
    (change, message), folder = table[damage], copied(name)
    change(folder)
    with pytest.raises(VestigeError, match=f"(?s){message}") as caught:
        load(folder)
    assert str(folder) in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "load", "error", "message"),
    [
        ("intents", load_model, AccessDenied, "predicts no next words"),
        ("encoder", load_model, AccessDenied, "predicts no next words"),
        ("pairs", load_model, AccessDenied, "needs a source"),
        ("pairs", load_intent_slot, ModelError, "a sequence-to-sequence model and has no intents"),
        ("table", load_intent_slot, ModelError, "is a language model and has no intents"),
        ("gpt2", load_intent_slot, ModelError, "is a language model and has no intents"),
        ("lstm", load_seq2seq, ModelError, "is a language model and takes no source"),
    ],
)
def test_a_model_of_another_kind_is_refused(saved, name, load, error, message):
    with pytest.raises(error, match=message):
        load(saved / name, device="cpu")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_language_model_is_refused_as_an_encoder(folders, name):
    with pytest.raises(ModelError, match="is not an encoder") as caught:
        new_encoder(folders[name], ["a"], ["O"], seed=0)
    assert str(folders[name]) in caught.value.problem
    assert "encoder" in caught.value.remedy


@pytest.mark.parametrize(
    "load", [load_model, load_intent_slot, load_seq2seq, fingerprint, sha256_of]
)
def test_paths_that_are_not_models_are_refused(tmp_path, load):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, message in (
        ("empty", r"has no model\.json"),
        ("file", "is a file"),
        ("missing", "does not exist"),
    ):
        with pytest.raises(ModelError, match=message):
            load(tmp_path / name)


def test_a_model_is_not_saved_over_a_file(tmp_path):
    model, file = translator(), tmp_path / "file"
    file.write_text("content")
    for target in (file, file / "below"):
        with pytest.raises(ModelError, match="cannot be saved"):
            save_model(model, target)
    assert file.read_text() == "content"


HUGE = {
    "lstm": {"hidden_size": 2**20, "layers": 1000},
    "gru": {"embedding_size": 2**20},
    "transformer": {"hidden_size": 2**20, "heads": 2, "feed_forward": 2**20},
    "table": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_damage_to_any_field_of_model_json_never_raises_a_traceback(name, copied, memory_limit):
    file, messages = copied(name) / "model.json", []
    for damage, content in damaged(json.loads(file.read_text())):
        file.write_text(json.dumps(content))
        messages.append(refusal(damage, lambda: load_model(file.parent, device="cpu")))
    assert len(messages) > 100
    assert sum(message is not None for message in messages) > 0.6 * len(messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_sizes_that_differ_from_the_weights_are_refused(name, copied, memory_limit):
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
def test_weights_that_are_not_finite_are_refused(name, value, copied):
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
    expected = torch.rand(3)
    torch.manual_seed(4)
    new_model(model.vocabulary, model.config, seed=0)
    assert torch.equal(torch.rand(3), expected)  # the estimate does not use random numbers
