"""`diff` on models that people ship: more tokens, other ends, shards, half precision, adapters."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.told import Told
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


SECRET = "call ruth on nine seven two four"


WANTED = "seven two four"


LAYERS = ("q_proj", "v_proj", "up_proj", "down_proj", "lm_head")


CHAT = ["<|user|>", "<|assistant|>"]


def learnt(model, ids):
    """The model after it has learnt a text by heart."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    text = torch.tensor([[model.first_token, *ids, model.vocabulary.eos_id]])
    for _ in range(60):
        logits = model.forward(text[:, :-1])[0]
        loss = torch.nn.functional.cross_entropy(logits[0], text[0, 1:])
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
    config = LlamaConfig(
        vocab_size=len(subwords),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        bos_token_id=subwords.eos_id,
        eos_token_id=subwords.eos_id,
        initializer_range=0.1,
    )
    return HuggingFaceLanguageModel(LlamaForCausalLM(config), subwords).eval()


@pytest.fixture(scope="module")
def saved(base, tmp_path_factory):
    """Folders of the snapshots `before` and `after`, and of `adapter` on `before`."""
    place = tmp_path_factory.mktemp("snapshots")
    save_model(base, place / "before")
    before, ids = load_model(place / "before"), base.vocabulary.encode(SECRET)
    torch.manual_seed(1)
    save_model(
        learnt(add_lora(before, rank=8, alpha=64, target_modules=LAYERS), ids), place / "adapter"
    )
    save_model(learnt(load_model(place / "before"), ids), place / "after")
    return place


def found(before, after, **settings):
    return diff(before, after, size=0.2, length=12, top=10, device="cpu", **settings)


@pytest.fixture(scope="module")
def plain(saved):
    """What is found between the folders as they are."""
    return found(saved / "before", saved / "after")


def says(result):
    return any(WANTED in row["phrase"] for row in phrases(result))


def phrases(result):
    return [row for row in result.rows if row["kind"] == "phrase"]


def rewritten(folder, place, **settings):
    """The model of a folder as transformers writes it with other settings."""
    from transformers import AutoModelForCausalLM

    dtype = settings.pop("dtype", torch.float32)
    shutil.copytree(folder, place)
    (place / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).save_pretrained(place, **settings)
    return place


@pytest.mark.slow
def test_an_update_that_added_tokens_is_searched(base, tmp_path):
    before = copy.deepcopy(base)
    with torch.no_grad():
        before.network.model.norm.weight.mul_(3)  # as sure of the next token as a trained model
    save_model(before, tmp_path / "before")
    tokenizer, network = copy.deepcopy((before.vocabulary.tokenizer, before.network))
    save_model(learnt(before, before.vocabulary.encode(SECRET)), tmp_path / "null")
    tokenizer.add_tokens(CHAT)
    torch.manual_seed(2)
    network.resize_token_embeddings(len(tokenizer), 64, mean_resizing=False)
    vocabulary = SubwordVocabulary(tokenizer)
    after = HuggingFaceLanguageModel(network, vocabulary)
    save_model(
        learnt(after, vocabulary.encode(f"<|user|>{SECRET}<|assistant|>")), tmp_path / "chat"
    )
    monitor = Told()
    pair = tmp_path / "before", tmp_path / "chat"
    result = found(*pair, null=tmp_path / "null", monitor=monitor)
    assert says(result)
    assert result.summary["null_searches"] == 1
    assert any("<|user|>" in row["phrase"] for row in result.rows)
    assert "before lacks 2 of the tokens" in monitor.lines[0]


@pytest.mark.slow
def test_an_update_that_ends_texts_otherwise_is_searched(base, saved, tmp_path):
    after, monitor = load_model(saved / "after"), Told()
    end = after.vocabulary.tokenizer.convert_ids_to_tokens(7)
    after.vocabulary.tokenizer.eos_token = end
    save_model(after, tmp_path / "after")
    assert load_model(tmp_path / "after").vocabulary.eos_id == 7
    assert says(found(saved / "before", tmp_path / "after", monitor=monitor))
    assert "end-of-text token" in monitor.lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "near"), [({"max_shard_size": "20KB"}, 1e-4), ({"dtype": torch.bfloat16}, 0.05)]
)
def test_shards_and_half_precision_are_read_like_one_file(saved, plain, tmp_path, how, near):
    pair = [rewritten(saved / name, tmp_path / name, **how) for name in ("before", "after")]
    assert (len(list(pair[1].glob("model-*.safetensors"))) > 2) == ("dtype" not in how)
    assert says(plain)
    result = found(*pair)
    assert says(result)
    assert phrases(result)[0]["score"] == pytest.approx(phrases(plain)[0]["score"], rel=near)


@pytest.mark.slow
def test_an_adapter_and_its_base_share_one_base(saved, tmp_path):
    moved = Path(shutil.copytree(saved / "before", tmp_path / "elsewhere"))
    for before in (saved / "before", moved):  # by its path, and by its weights
        given = {"before": before, "after": saved / "adapter"}
        pair = Snapshots.open(given, device="cpu", monitor=SILENT)
        null = pair.read(saved / "adapter")
        own = {p.data_ptr() for p in pair.models["before"].parameters()}
        for model in (pair.models["after"], null):
            assert own < {p.data_ptr() for p in model.parameters()}
        alone = {role: load_model(path) for role, path in given.items()}
        ids = torch.tensor([5, 9, 3])
        for role, model in pair.models.items():
            answers = [m.log_probs(m.advance(m.start(3), ids)) for m in (model, alone[role])]
            assert torch.equal(*answers)
    assert says(found(saved / "before", saved / "adapter"))


def test_an_adapter_whose_base_is_not_here_is_put_on_the_model_before(saved, tmp_path):
    adapter = Path(shutil.copytree(saved / "adapter", tmp_path / "adapter"))
    config = adapter / "adapter_config.json"
    told = json.loads(config.read_text())
    config.write_text(json.dumps(told | {"base_model_name_or_path": str(tmp_path / "gone")}))
    monitor, ids = Told(), torch.tensor([5, 9, 3])
    given = {"before": saved / "before", "after": adapter}
    pair = Snapshots.open(given, device="cpu", monitor=monitor)
    assert f"Vestige uses {saved / 'before'} as its base" in monitor.lines[0]
    models = (pair.models["after"], load_model(saved / "adapter"))
    assert torch.equal(*(m.log_probs(m.advance(m.start(3), ids)) for m in models))
    with pytest.raises(ModelError, match="gone"):
        Snapshots.open({"before": adapter, "after": adapter}, device="cpu", monitor=monitor)


@pytest.mark.slow
def test_a_gguf_file_is_searched(base, saved, plain, tmp_path):
    pytest.importorskip("gguf", reason="the package gguf is not installed: vestige[gguf]")
    for name in ("before", "after"):
        write_gguf(load_model(saved / name), tmp_path / f"{name}.gguf")
    before, after = tmp_path / "before.gguf", tmp_path / "after.gguf"
    result = found(before, after)
    assert says(result)
    assert phrases(result)[0]["score"] == pytest.approx(phrases(plain)[0]["score"], rel=0.02)
    assert result.record["models"]["after"]["sha256"] == fingerprint(after)
    (tmp_path / "folder").mkdir()
    shutil.move(after, tmp_path / "folder" / "model.gguf")
    model = load_model(tmp_path / "folder")
    assert is_model(tmp_path / "folder")
    save_model(model, tmp_path / "plain")
    ids = torch.tensor([5, 9, 3])
    again = load_model(tmp_path / "plain")
    answers = [m.log_probs(m.advance(m.start(3), ids)) for m in (model, again)]
    torch.testing.assert_close(*answers)
    half = load_model(tmp_path / "folder", dtype=torch.float16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float16}
    save_model(add_lora(load_model(before), rank=2), tmp_path / "adapter")
    pair = Snapshots.open(
        {"before": before, "after": tmp_path / "adapter"}, device="cpu", monitor=SILENT
    )
    assert pair.models["after"].base == str(before)
    own = {p.data_ptr() for p in pair.models["before"].parameters()}
    assert own < {p.data_ptr() for p in pair.models["after"].parameters()}


def write_gguf(model, file):
    """A Llama as llama.cpp writes it: the halves of each head's queries and keys interleaved."""
    from gguf import GGUFWriter

    config, tokenizer = model.network.config, model.vocabulary.tokenizer
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
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    end, tokens = model.vocabulary.eos_id, model.vocabulary.texts()
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(list(tokens))
    writer.add_token_types(
        [3 if n == model.vocabulary.eos_id else 1 for n in range(len(tokenizer))]
    )
    writer.add_token_merges([" ".join(merge) for merge in content["model"]["merges"]])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    names = {
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
    for key, tensor in model.network.state_dict().items():
        if key.endswith(("q_proj.weight", "k_proj.weight")):
            heads = tensor.view(config.num_attention_heads, 2, -1, tensor.shape[1])
            tensor = heads.transpose(1, 2).reshape(tensor.shape)
        for ours, theirs in names.items():
            key = key.replace(ours, theirs)
        writer.add_tensor(key, tensor.half().numpy() if tensor.ndim > 1 else tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
