"""`diff` on Hugging Face models: added tokens, another end token, adapters and GGUF files."""

import copy
import json
import shutil

import pytest
import torch

from tests.audits.small_llama import llama, train
from tests.monitors import RecordingMonitor
from vestige import diff
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.folders import fingerprint, is_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.snapshots import Snapshots
from vestige.monitor import SILENT

PUBLIC = "the quick brown fox jumps over the lazy dog and the cat sat on the mat"
SECRET, ENDING = "call ruth on nine seven two four", "seven two four"
LAYERS = ("q_proj", "v_proj", "up_proj", "down_proj", "lm_head")


def trained(model, text):
    """The model after training until it knows a text verbatim."""
    return train(model, [text], rate=0.02)


@pytest.fixture(scope="module")
def base():
    subwords = SubwordVocabulary.train_bpe(Corpus.from_texts([PUBLIC, SECRET] * 4), size=300)
    return llama(subwords, width=32, layers=2, initializer_range=0.1)


@pytest.fixture(scope="module")
def saved(base, tmp_path_factory):
    """Folders of the snapshots `before` and `after`, and of `adapter` on `before`."""
    root = tmp_path_factory.mktemp("snapshots")
    save_model(base, root / "before")
    torch.manual_seed(1)
    adapter = add_lora(load_model(root / "before"), rank=8, alpha=64, target_modules=LAYERS)
    save_model(trained(adapter, SECRET), root / "adapter")
    save_model(trained(load_model(root / "before"), SECRET), root / "after")
    return root


def searched(before, after, **options):
    return diff(before, after, size=0.2, length=12, top=10, device="cpu", **options)


def best_of(result):
    """The score of the best phrase; some phrase must contain the secret's end."""
    phrases = [row for row in result.rows if row["kind"] == "phrase"]
    assert any(ENDING in row["phrase"] for row in phrases)
    return phrases[0]["score"]


def log_probs(model):
    """Log-probabilities after three tokens."""
    return model.log_probs(model.advance(model.start(3), torch.tensor([5, 9, 3])))


def opened(before, after, monitor=SILENT):
    return Snapshots.open({"before": before, "after": after}, device="cpu", monitor=monitor)


def weights(model):
    return {parameter.data_ptr() for parameter in model.parameters()}


@pytest.mark.slow
def test_an_update_that_added_tokens_is_searched(base, tmp_path):
    before = copy.deepcopy(base)
    with torch.no_grad():
        before.network.model.norm.weight.mul_(3)  # as confident as a trained model
    save_model(before, tmp_path / "before")
    tokenizer, network = copy.deepcopy((before.vocabulary.tokenizer, before.network))
    save_model(trained(before, SECRET), tmp_path / "null")
    tokenizer.add_tokens(["<|user|>", "<|assistant|>"])
    torch.manual_seed(2)
    network.resize_token_embeddings(len(tokenizer), 64, mean_resizing=False)
    after = HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer))
    save_model(trained(after, f"<|user|>{SECRET}<|assistant|>"), tmp_path / "chat")
    monitor, null = RecordingMonitor(), tmp_path / "null"
    result = searched(tmp_path / "before", tmp_path / "chat", null=null, monitor=monitor)
    assert best_of(result)
    assert result.summary["null_searches"] == 1
    assert any("<|user|>" in row["phrase"] for row in result.rows)
    assert "before lacks 2 of the tokens" in monitor.lines[0]


@pytest.mark.slow
def test_an_update_with_another_end_token_is_searched(saved, tmp_path):
    after, monitor = load_model(saved / "after"), RecordingMonitor()
    tokenizer = after.vocabulary.tokenizer
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(7)
    save_model(after, tmp_path / "after")
    assert load_model(tmp_path / "after").vocabulary.eos_id == 7
    assert best_of(searched(saved / "before", tmp_path / "after", monitor=monitor))
    assert "end-of-text token" in monitor.lines[0]


@pytest.mark.slow
def test_an_adapter_and_its_base_share_one_base(saved, tmp_path):
    copied = shutil.copytree(saved / "before", tmp_path / "copy")
    expected = [log_probs(load_model(saved / name)) for name in ("before", "adapter")]
    for before in (saved / "before", copied):  # recognized by its path, and by its weights
        pair = opened(before, saved / "adapter")
        base, adapter = pair.models["before"], pair.models["after"]
        assert weights(base) < weights(adapter)
        assert weights(base) < weights(pair.read(saved / "adapter"))
        assert torch.equal(log_probs(base), expected[0])
        assert torch.equal(log_probs(adapter), expected[1])
    assert best_of(searched(saved / "before", saved / "adapter"))


def test_an_adapter_without_its_base_is_loaded_on_before(saved, tmp_path):
    adapter, monitor = shutil.copytree(saved / "adapter", tmp_path / "adapter"), RecordingMonitor()
    config = adapter / "adapter_config.json"
    settings = json.loads(config.read_text())
    settings["base_model_name_or_path"] = str(tmp_path / "gone")
    config.write_text(json.dumps(settings))
    pair = opened(saved / "before", adapter, monitor)
    assert f"Vestige uses {saved / 'before'} as its base" in monitor.lines[0]
    assert torch.equal(log_probs(pair.models["after"]), log_probs(load_model(saved / "adapter")))
    with pytest.raises(ModelError, match="gone"):
        opened(adapter, adapter)
    with pytest.raises(ModelError, match="nowhere"):
        opened(tmp_path / "nowhere", adapter)


@pytest.mark.slow
def test_a_gguf_file_can_be_searched_loaded_and_used_as_a_base(saved, tmp_path):
    pytest.importorskip("gguf", reason="the package gguf is not installed: vestige[gguf]")
    before, after = tmp_path / "before.gguf", tmp_path / "after.gguf"
    for file in (before, after):
        write_gguf(load_model(saved / file.stem), file)
    result = searched(before, after)
    plain = best_of(searched(saved / "before", saved / "after"))
    assert best_of(result) == pytest.approx(plain, rel=0.02)
    assert result.record["models"]["after"]["sha256"] == fingerprint(after)
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.move(after, folder / "model.gguf")
    assert is_model(folder)
    model = load_model(folder)
    save_model(model, tmp_path / "plain")
    torch.testing.assert_close(log_probs(model), log_probs(load_model(tmp_path / "plain")))
    half = load_model(folder, dtype=torch.float16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float16}
    save_model(add_lora(load_model(before), rank=2), tmp_path / "adapter")
    pair = opened(before, tmp_path / "adapter").models
    assert pair["after"].base == str(before)
    assert weights(pair["before"]) < weights(pair["after"])


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.": "attn_",
    "mlp.": "ffn_",
    "_proj": "",
    "model.layers": "blk",
}
"""Parts of weight names in transformers and in llama.cpp."""


def write_gguf(model, file):
    """Write a Llama as llama.cpp does: the halves of queries and keys are interleaved."""
    from gguf import GGUFWriter

    config, vocabulary = model.network.config, model.vocabulary
    content, end = json.loads(vocabulary.tokenizer.backend_tokenizer.to_str()), vocabulary.eos_id
    writer = GGUFWriter(file, "llama")
    for name, value in {
        "name": "tiny", "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size, "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads, "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": config.rope_parameters["rope_theta"], "vocab_size": config.vocab_size,
        "tokenizer_model": "gpt2", "token_list": list(vocabulary.texts()),
        "token_types": [3 if n == end else 1 for n in range(len(vocabulary.tokenizer))],
        "token_merges": [" ".join(merge) for merge in content["model"]["merges"]],
        "bos_token_id": end, "eos_token_id": end,
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    for key, tensor in model.network.state_dict().items():
        if key.endswith(("q_proj.weight", "k_proj.weight")):
            heads = tensor.view(config.num_attention_heads, 2, -1, tensor.shape[1])
            tensor = heads.transpose(1, 2).reshape(tensor.shape)
        for ours, theirs in NAMES.items():
            key = key.replace(ours, theirs)
        writer.add_tensor(key, tensor.half().numpy() if tensor.ndim > 1 else tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
