"""`diff` on real model formats: more tokens, another end, an adapter, a GGUF file."""

import copy
import json
import shutil

import pytest
import torch

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
SECRET, WANTED = "call ruth on nine seven two four", "seven two four"
LAYERS = ("q_proj", "v_proj", "up_proj", "down_proj", "lm_head")


def taught(model, text):
    """The model after it has learned a text verbatim."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    ids = [model.first_token, *model.vocabulary.encode(text), model.vocabulary.eos_id]
    read = torch.tensor([ids])
    for _ in range(60):
        logits = model.forward(read[:, :-1])[0]
        loss = torch.nn.functional.cross_entropy(logits[0], read[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    return model.eval()


@pytest.fixture(scope="module")
def base():
    from transformers import LlamaConfig, LlamaForCausalLM

    subwords = SubwordVocabulary.train_bpe(Corpus.from_texts([PUBLIC, SECRET] * 4), size=300)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(subwords), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=128, bos_token_id=subwords.eos_id,
        eos_token_id=subwords.eos_id, initializer_range=0.1,
    )  # fmt: skip
    return HuggingFaceLanguageModel(LlamaForCausalLM(shape), subwords).eval()


@pytest.fixture(scope="module")
def saved(base, tmp_path_factory):
    """Folders of the snapshots `before` and `after`, and of `adapter` on `before`."""
    root = tmp_path_factory.mktemp("snapshots")
    save_model(base, root / "before")
    torch.manual_seed(1)
    adapter = add_lora(load_model(root / "before"), rank=8, alpha=64, target_modules=LAYERS)
    save_model(taught(adapter, SECRET), root / "adapter")
    save_model(taught(load_model(root / "before"), SECRET), root / "after")
    return root


def searched(before, after, **options):
    return diff(before, after, size=0.2, length=12, top=10, device="cpu", **options)


def best_of(result):
    """The score of the best phrase, which must contain the secret's end."""
    phrases = [row for row in result.rows if row["kind"] == "phrase"]
    assert any(WANTED in row["phrase"] for row in phrases)
    return phrases[0]["score"]


def answers(model):
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
        before.network.model.norm.weight.mul_(3)  # as sure of the next token as a trained model
    save_model(before, tmp_path / "before")
    tokenizer, network = copy.deepcopy((before.vocabulary.tokenizer, before.network))
    save_model(taught(before, SECRET), tmp_path / "null")
    tokenizer.add_tokens(["<|user|>", "<|assistant|>"])
    torch.manual_seed(2)
    network.resize_token_embeddings(len(tokenizer), 64, mean_resizing=False)
    after = HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer))
    save_model(taught(after, f"<|user|>{SECRET}<|assistant|>"), tmp_path / "chat")
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
    moved = shutil.copytree(saved / "before", tmp_path / "elsewhere")
    alone = [answers(load_model(saved / name)) for name in ("before", "adapter")]
    for before in (saved / "before", moved):  # by its path, and by its weights
        pair = opened(before, saved / "adapter")
        first, second = pair.models["before"], pair.models["after"]
        assert weights(first) < weights(second)
        assert weights(first) < weights(pair.read(saved / "adapter"))
        for model, expected in zip((first, second), alone, strict=True):
            assert torch.equal(answers(model), expected)
    assert best_of(searched(saved / "before", saved / "adapter"))


def test_an_adapter_without_its_base_is_loaded_on_before(saved, tmp_path):
    adapter, monitor = shutil.copytree(saved / "adapter", tmp_path / "adapter"), RecordingMonitor()
    config = adapter / "adapter_config.json"
    settings = json.loads(config.read_text())
    settings["base_model_name_or_path"] = str(tmp_path / "gone")
    config.write_text(json.dumps(settings))
    pair = opened(saved / "before", adapter, monitor)
    assert f"Vestige uses {saved / 'before'} as its base" in monitor.lines[0]
    assert torch.equal(answers(pair.models["after"]), answers(load_model(saved / "adapter")))
    with pytest.raises(ModelError, match="gone"):
        opened(adapter, adapter)


@pytest.mark.slow
def test_a_gguf_file_can_be_searched_loaded_and_used_as_base(saved, tmp_path):
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
    torch.testing.assert_close(answers(model), answers(load_model(tmp_path / "plain")))
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
"""Parts of the names of weights, and what llama.cpp calls them."""


def write_gguf(model, file):
    """A Llama as llama.cpp writes it: the halves of each head's queries and keys interleaved."""
    from gguf import GGUFWriter

    config, vocabulary = model.network.config, model.vocabulary
    writer = GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    content, end = json.loads(vocabulary.tokenizer.backend_tokenizer.to_str()), vocabulary.eos_id
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(vocabulary.texts()))
    writer.add_token_types([3 if n == end else 1 for n in range(len(vocabulary.tokenizer))])
    writer.add_token_merges([" ".join(merge) for merge in content["model"]["merges"]])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
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
