"""Models are saved and loaded bit for bit, and a fingerprint covers the weights that are loaded."""

import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import vestige
from tests.models.conftest import (
    LANGUAGE_MODELS,
    SOURCES,
    TARGETS,
    TRANSLATORS,
    edit_json,
    intent_slot_model,
    shard,
    translator,
)
from tests.models.test_intent_slot import KINDS
from vestige.data.corpus import Corpus
from vestige.data.subwords import END_OF_TEXT, SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models.checkpoints import (
    check_compatible,
    load_intent_slot,
    load_model,
    load_seq2seq,
    save_model,
)
from vestige.models.folders import (
    corpus_record,
    fingerprint,
    model_record,
    network_record,
    replacing,
    sha256_of,
    weight_files,
)
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel


@pytest.fixture
def saved(shared, tmp_path):
    save_model(shared["lstm"], tmp_path / "lstm")
    return tmp_path / "lstm"


def answer(model):
    return model.log_probs(model.advance(model.start(2), torch.tensor([3, 1])))


def answer_pairs(model):
    decoder = model.given("s1 s2")
    return decoder.logits(decoder.start(2))


def answer_intents(model):
    tokens, tags = torch.tensor([[5, 7, 6]]), torch.tensor([[0, 1, 2]])
    return model(tokens, torch.tensor([1]), tags).joint


ROUND_TRIPS = {
    **dict.fromkeys(LANGUAGE_MODELS, (load_model, answer)),
    **{f"pairs: {kind}": (load_seq2seq, answer_pairs) for kind in TRANSLATORS},
    **{f"intents: {kind}": (load_intent_slot, answer_intents) for kind in (*KINDS, "bert")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_loaded_model_equals_the_saved_one(request, words, tmp_path, name):
    load, result = ROUND_TRIPS[name]
    kind = name.split(": ")[-1]
    if load is load_seq2seq:
        model = translator(kind)
    elif kind == "bert":
        model = request.getfixturevalue("new_bert")
    elif load is load_intent_slot:
        model = intent_slot_model(words, KINDS[kind])
    else:
        model = request.getfixturevalue("shared")[name]
    save_model(model, tmp_path / "run" / "model")
    again = load(tmp_path / "run", device="cpu")
    assert type(again) is type(model)
    assert not again.training
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert torch.equal(result(again), result(model))
    for field in ("vocab_size", "config", "intents", "tags", "longest", "architecture"):
        assert getattr(again, field, None) == getattr(model, field, None)
    assert again.vocabulary.fingerprint() == model.vocabulary.fingerprint()
    if load is load_model:
        check_compatible(model, again)
    if load is load_seq2seq:
        assert (again.source_vocabulary, again.vocabulary) == (SOURCES, TARGETS)
    if kind in KINDS:
        assert again.embedding.weight.requires_grad == model.embedding.weight.requires_grad
    if kind == "bert":
        assert again.dropout.p == model.dropout.p
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "run" / "model")
    assert not list((tmp_path / "run" / "model").glob("*.bin"))


def test_a_translator_can_have_two_subword_vocabularies(tmp_path):
    french, english = (
        SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=270)
        for text in ("le renard brun saute", "the brown fox jumps")
    )
    model = Seq2SeqModel(french, english, Seq2SeqConfig(embedding_size=4, hidden_size=4)).eval()
    save_model(model, tmp_path / "model")
    again = load_seq2seq(tmp_path / "model", device="cpu")
    assert again.source_vocabulary.fingerprint() == french.fingerprint()
    assert again.vocabulary.fingerprint() == english.fingerprint()


def test_the_fingerprint_of_an_encoder_covers_its_heads(new_bert, tmp_path):
    model = copy.deepcopy(new_bert)
    for folder in ("a", "b"):
        save_model(model, tmp_path / folder)
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    with torch.no_grad():
        model.tag_head.bias[0] += 1
    save_model(model, tmp_path / "b")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")


def test_saving_leaves_only_the_files_of_the_model(shared, tmp_path):
    for _ in range(2):
        save_model(shared["lstm"], tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    files = sorted((tmp_path / "model").iterdir())
    assert [file.name for file in files] == ["model.json", "model.safetensors", "vocabulary.json"]
    assert len({file.stat().st_mode for file in files}) == 1


def test_a_failed_save_keeps_the_old_model(saved):
    before = fingerprint(saved)

    def fail():
        with replacing(saved) as folder:
            (folder / "model.json").write_text("{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert fingerprint(saved) == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


KILLED = """
import os, shutil, sys
from pathlib import Path
from vestige.models.folders import replacing

old, new, function, calls_left = sys.argv[1:]
owner = shutil if function == "rmtree" else Path if function == "mkdir" else os
original, left = getattr(owner, function), int(calls_left)

def killing(*arguments, **options):
    global left
    if not left:
        os.kill(os.getpid(), 9)
    left -= 1
    return original(*arguments, **options)

setattr(owner, function, killing)
with replacing(Path(old)) as fresh:
    for file in Path(new).iterdir():
        (fresh / file.name).write_bytes(file.read_bytes())
"""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(vestige.__file__).parents[1])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "calls", "survivor"),
    [("mkdir", 0, "old"), ("replace", 0, "old"), ("replace", 1, "old"), ("rmtree", 1, "new")],
)
def test_a_kill_at_any_step_leaves_a_complete_model(tmp_path, function, calls, survivor):
    old, new = TableModel([0.5, 0.5], [[0.5, 0.5]] * 2), TableModel([1, 0], [[1, 0]] * 2)
    target, other = tmp_path / "model", tmp_path / "other"
    save_model(old, target)
    save_model(new, other)
    expected = {"old": fingerprint(target), "new": fingerprint(other)}
    command = [sys.executable, "-c", KILLED, target, other, function, str(calls)]
    assert subprocess.run(command, check=False, env=ENVIRONMENT).returncode == -9
    assert fingerprint(target) == expected[survivor]
    assert isinstance(load_model(target), TableModel)
    save_model(new, target)
    assert fingerprint(target) == fingerprint(other)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "other"}


def test_a_checkpoint_moved_aside_by_a_killed_save_is_found(saved):
    expected = fingerprint(saved)
    shutil.move(saved, saved.with_name(f".{saved.name}.before"))
    assert fingerprint(saved) == expected


@pytest.mark.slow
def test_native_models_load_without_transformers(saved):
    code = (
        "import sys; from vestige.models.checkpoints import load_model; "
        f"load_model({str(saved)!r}); "
        "assert not {'transformers', 'peft', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)


def test_shards_are_hashed_and_stray_files_are_not(folder, saved):
    expected = load_model(folder).state_dict()
    shard(folder, "a.safetensors", "b.safetensors")
    loaded = load_model(folder).state_dict()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)
    assert [file.name for file in weight_files(folder)] == ["a.safetensors", "b.safetensors"]
    before = fingerprint(folder)
    for path in (folder, saved):
        expected = fingerprint(path)
        save_file({"x": torch.zeros(1)}, path / "stray.safetensors")
        assert fingerprint(path) == expected
    weights = load_file(folder / "b.safetensors")
    key = next(iter(weights))
    save_file({**weights, key: weights[key] + 1}, folder / "b.safetensors")
    assert fingerprint(folder) != before


def test_model_safetensors_takes_precedence_over_an_index(folder):
    content = (folder / "model.safetensors").read_bytes()
    shard(folder, "../elsewhere.safetensors")
    (folder / "model.safetensors").write_bytes(content)
    assert [file.name for file in weight_files(folder)] == ["model.safetensors"]
    load_model(folder)


def test_weights_named_in_the_configuration_are_hashed(folder):
    shutil.move(folder / "model.safetensors", folder / "other.safetensors")
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")  # a decoy
    edit_json(folder / "config.json", transformers_weights="other.safetensors")
    load_model(folder)
    assert [file.name for file in weight_files(folder)] == ["other.safetensors"]


def test_symbolic_links_of_the_hub_cache_are_followed(folder, tmp_path):
    before = fingerprint(folder)
    shutil.move(folder / "model.safetensors", tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    load_model(folder)
    assert fingerprint(folder) == before


def test_models_with_different_vocabularies_are_incompatible(words):
    size = LSTMConfig(layers=1, embedding_size=2, hidden_size=2)
    model = LSTMLanguageModel(words, size)
    assert check_compatible(model, LSTMLanguageModel(words, size)) == ()
    lower = LSTMLanguageModel(WordVocabulary(words.words, lowercase=True), size)
    assert check_compatible(model, lower) == ("lower case (False and True)",)
    renamed = WordVocabulary((*words.words[:-1], "another"))
    longer = WordVocabulary((*words.words, "another"))
    for vocabulary, message in (
        (renamed, "both have 20 tokens, but token 19 has two texts"),
        (longer, "20 tokens .* AFTER 21"),
    ):
        with pytest.raises(IncompatibleModels, match=message) as caught:
            check_compatible(model, LSTMLanguageModel(vocabulary, size))
        assert "train both with one vocabulary" in caught.value.remedy


def test_tokenizers_can_differ_in_flags_but_not_in_tokens(subwords):
    from tokenizers import Tokenizer, normalizers
    from transformers import PreTrainedTokenizerFast

    def changed(*, eos=END_OF_TEXT, fold=False, swap=False):
        content = json.loads(subwords.tokenizer.backend_tokenizer.to_str())
        if swap:
            ids = content["model"]["vocab"]
            first, second = list(ids)[20:22]
            ids[first], ids[second] = ids[second], ids[first]
        inner = Tokenizer.from_str(json.dumps(content))
        if fold:
            inner.normalizer = normalizers.Lowercase()
        outer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=eos, bos_token=eos)
        vocabulary = SubwordVocabulary(outer)
        uniform = torch.full((len(vocabulary), len(vocabulary)), 1 / len(vocabulary)).double()
        return TableModel(uniform[0], uniform, vocabulary)

    before, other = changed(), subwords.tokenizer.convert_ids_to_tokens(300 % len(subwords))
    assert check_compatible(before, changed()) == ()
    assert check_compatible(before, changed(fold=True)) == ("the tokenizer's normalizer",)
    differences = check_compatible(before, changed(eos=other))
    assert differences[0] == f"end-of-text token ({END_OF_TEXT!r} and {other!r})"
    with pytest.raises(IncompatibleModels, match=r"but token \d+ has two texts"):
        check_compatible(before, changed(swap=True))


def test_a_model_is_hashed_by_name_shape_type_and_bytes_of_its_tensors():
    model = TableModel([0.25, 0.75], [[0.5, 0.5], [1.0, 0.0]])
    [(name, tensor)] = model.state_dict().items()
    naive = hashlib.sha256(f"{name} {tuple(tensor.shape)} torch.float32".encode())
    naive.update(tensor.numpy().tobytes())
    before = sha256_of(model)
    assert before == naive.hexdigest()
    original = tensor.view(-1)[0].clone()
    tensor.view(-1)[0] = torch.nextafter(original, torch.tensor(9.0))
    assert sha256_of(model) != before
    tensor.view(-1)[0] = original
    assert sha256_of(model) == before
    assert sha256_of(model.double()) != before

    class Pair(torch.nn.Module):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.register_buffer(name, torch.tensor([ord(name)]))

    assert sha256_of(Pair("ab")) == sha256_of(Pair("ba")) != sha256_of(Pair("ac"))


def test_a_model_is_recorded_with_path_hash_and_parameters(shared, saved):
    model = shared["lstm"]
    [weights] = saved.glob("*.safetensors")
    expected = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert sha256_of(saved) == sha256_of(str(saved)) == expected
    by_path, by_object = model_record(saved, model), model_record(model, model)
    assert (by_path.pop("path"), by_object.pop("path")) == (str(saved), None)
    assert (by_path.pop("sha256"), by_object.pop("sha256")) == (expected, sha256_of(model))
    assert by_path == by_object
    e, h, v = 8, 12, 20
    layers = 4 * h * (e + h) + 8 * h + 4 * h * (h + h) + 8 * h
    assert by_path["parameters"] == v * e + layers + h * v + v
    assert model_record(None, shared["table"])["parameters"] == 0
    record = network_record(model)
    assert (record["tokens"], record["hidden_size"], record["layers"]) == (20, 12, 2)
    assert record["vocabulary"] == model.vocabulary.fingerprint()
    assert "sha256" not in record
    fields = {"architecture", "parameters", "vocabulary", "tokens"}
    assert set(network_record(shared["table"])) == fields


def test_an_adapter_is_recorded_with_its_base_and_other_models_by_class(make, saved, words):
    model = make["lstm"]()
    model.base = str(saved)
    expected = {"path": str(saved), "sha256": sha256_of(saved)}
    assert model_record(saved, model)["base"] == expected

    class Custom(torch.nn.Module):
        vocabulary = words

    assert model_record(None, Custom())["architecture"] == "Custom"


def test_a_corpus_is_recorded_by_path_size_and_hash():
    corpus, other = (Corpus.from_texts(texts) for texts in (["a b", "c"], ["a b", "d"]))
    assert corpus_record(Path("x"), corpus) == {**corpus_record(corpus, corpus), "path": "x"}
    assert corpus_record(corpus, corpus)["path"] is None
    assert corpus_record(corpus, corpus)["documents"] == 2
    assert corpus_record(corpus, corpus)["sha256"] != corpus_record(other, other)["sha256"]
