"""Compared models are loaded in one precision and answer over one set of ids."""

import copy
import shutil

import numpy as np
import pytest
import torch

from tests.models.test_hugging_face import dispatch
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models import snapshots
from vestige.models.checkpoints import check_compatible, load_model, save_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.shared_ids import SharedIds, SharedVocabulary
from vestige.models.snapshots import Snapshots, common_dtype, stored_weights
from vestige.models.table import TableModel
from vestige.models.token_statistics import cached_outputs
from vestige.monitor import SILENT

CPU, GPU = torch.device("cpu"), torch.device("cuda")
HALVES = [torch.bfloat16, torch.float16]
TEXTS = ["the quick brown fox", "the lazy dog and the cat", "the cat sat on the mat"]


@pytest.fixture(scope="module")
def root(shared, folders, tmp_path_factory):
    """The Llama in three precisions, and its adapter."""
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("snapshots")
    for dtype in (torch.float32, *HALVES):
        stored = shutil.copytree(folders["llama"], root / str(dtype))
        AutoModelForCausalLM.from_pretrained(stored, dtype=dtype).save_pretrained(stored)
    save_model(shared["llama adapter"], root / "adapter")
    return root


def snapshots_of(model, device="cpu"):
    return Snapshots.with_base(model, None, device=device, monitor=SILENT)


def statistics(models):
    with cached_outputs(None, SILENT) as outputs:
        return models.statistics(models.encoded(TEXTS), outputs, of="texts")


def test_the_base_of_an_adapter_is_compared_and_a_whole_model_has_none(root, folders):
    pair, single = snapshots_of(root / "adapter"), snapshots_of(folders["llama"])
    assert set(pair.models) == {"target", "base"}
    assert set(single.models) == {"target"}
    pair_statistics, single_statistics = statistics(pair), statistics(single)
    base, target = (pair_statistics[name].log_probs for name in ("base", "target"))
    np.testing.assert_allclose(base, single_statistics["target"].log_probs, atol=1e-6)
    assert np.abs(target - base).max() > 0.01
    assert pair.recorded["base"]["sha256"] == single.recorded["target"]["sha256"]


def test_texts_are_cut_to_the_longest_that_a_model_reads(folders):
    [ids] = snapshots_of(folders["gpt2"]).encoded(["the quick brown fox " * 20])
    assert len(ids) == 11


@pytest.mark.parametrize("name", ["whole", "adapter"])
def test_statistics_do_not_depend_on_devices(root, folders, name):
    model = folders["llama"] if name == "whole" else root / "adapter"
    expected = statistics(snapshots_of(model))["target"]
    balanced = statistics(snapshots_of(model, "balanced"))["target"]
    assert np.allclose(balanced.log_probs, expected.log_probs, atol=1e-6)
    if name == "whole":
        distributed = snapshots_of(model)
        dispatch(distributed.target.network)
        result = statistics(distributed)["target"]
        assert result.ranks.tolist() == expected.ranks.tolist()
        np.testing.assert_allclose(result.log_probs, expected.log_probs, atol=1e-6)


def test_half_precision_is_used_if_the_hardware_supports_it(root, monkeypatch):
    log_probs = {}
    for supported in (True, False):
        monkeypatch.setattr(snapshots, "_in_hardware", lambda dtype, supported=supported: supported)
        half = snapshots_of(root / "torch.bfloat16")
        assert half.target.head.weight.dtype == (torch.bfloat16 if supported else torch.float32)
        log_probs[supported] = statistics(half)["target"].log_probs
    np.testing.assert_allclose(log_probs[True], log_probs[False], atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALVES)
def test_weights_keep_their_stored_precision_and_logits_are_float32(root, tmp_path, dtype):
    folder = root / str(dtype)
    half, wide = load_model(folder, device="cpu", dtype=dtype), load_model(folder, device="cpu")
    assert stored_weights(folder)[0] == dtype
    assert stored_weights(half) == stored_weights(folder)
    assert {parameter.dtype for parameter in half.parameters()} == {dtype}
    ids = torch.tensor([5, 9, 3])
    logits, expected = (model.logits(model.advance(model.start(3), ids)) for model in (half, wide))
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0.05, atol=0.05)
    save_model(add_lora(wide, rank=2), tmp_path / "adapter")  # has the precision of its base
    assert stored_weights(tmp_path / "adapter") == stored_weights(folder)
    model = load_model(tmp_path / "adapter", device="cpu", dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_compared_models_share_one_precision(root, tmp_path, monkeypatch):
    flag = {"name": "_is_avx512_bf16_supported", "raising": False}
    monkeypatch.setattr(torch.cpu, value=lambda: True, **flag)
    wide, brain, half = (root / str(dtype) for dtype in (torch.float32, *HALVES))
    assert common_dtype([brain, brain], CPU) == torch.bfloat16
    assert common_dtype([brain, wide], CPU) == torch.float32
    assert common_dtype([brain, half], GPU) == torch.float32
    assert common_dtype([half, half], GPU) == torch.float16
    assert common_dtype([half, half], CPU) == torch.float32  # faster on a CPU
    assert common_dtype([load_model(brain, device="cpu"), brain], CPU) == torch.float32
    monkeypatch.setattr(torch.cpu, value=lambda: False, **flag)
    assert common_dtype([brain, brain], CPU) == torch.float32
    numbers = sum(parameter.numel() for parameter in load_model(brain).parameters())
    monkeypatch.setattr(snapshots, "free_memory", lambda: 2 * 4 * numbers - 1)
    assert common_dtype([brain, brain], CPU) == torch.bfloat16  # float32 would not fit
    assert stored_weights(tmp_path) is None  # unknown
    assert common_dtype([tmp_path, tmp_path], CPU) == torch.float32


CHAT = ["<|user|>", "<|assistant|>"]
TOKENS = torch.tensor([[5, 9, 3], [20, 7, 11]])


@pytest.fixture(params=["gpt2", "llama"])
def base(request, shared):
    return shared[request.param]


def aligned(before, after):
    """Two snapshots over one set of ids."""
    both = SharedVocabulary.of(before, after)
    return both.adapt(before), both.adapt(after)


def tuned(base, *, added=CHAT, multiple=None):
    """A changed model with `added` tokens, its head padded to a multiple."""
    tokenizer, network = copy.deepcopy((base.vocabulary.tokenizer, base.network))
    tokenizer.add_tokens(added)
    network.resize_token_embeddings(len(tokenizer), multiple, mean_resizing=False)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
    return HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer)).eval()


def after_reading(model, tokens):
    state = model.start(len(tokens))
    for column in tokens.T:
        state = model.advance(state, column)
    return model.log_probs(state)


@torch.no_grad()
def test_shared_ids_keep_their_answers(base):
    width, after = len(base.vocabulary), tuned(base)
    earlier, later = aligned(base, after)
    check_compatible(earlier, later)
    assert earlier.vocab_size == later.vocab_size == width + len(CHAT)
    naive = after_reading(base, TOKENS)[:, :width].log_softmax(-1)  # without the head's padding
    answers = after_reading(earlier, TOKENS)
    torch.testing.assert_close(answers[:, :width], naive)
    assert (answers[:, width:] == -torch.inf).all()
    torch.testing.assert_close(after_reading(later, TOKENS), after_reading(after, TOKENS))
    # An id that a model does not have is read as the end of a text.
    new, end = (torch.tensor([[5, id, 3]]) for id in (width, base.vocabulary.eos_id))
    torch.testing.assert_close(after_reading(earlier, new), after_reading(earlier, end))
    # A new token that the update promotes has a finite gain.
    pair = Pair.of(earlier, later, TokenScore("smoothed"))
    gains = pair.gains(pair.start_anywhere([(width,), (3,)]))
    assert gains.isfinite().all()
    assert (gains[:, width:] > 0).all()


@torch.no_grad()
def test_a_padded_head_is_cut_to_the_tokens(base):
    after = tuned(base, added=[], multiple=64)
    assert after.vocab_size % 64 == 0
    assert after.vocab_size > base.vocab_size
    earlier, later = aligned(base, after)
    assert earlier.vocab_size == later.vocab_size == len(base.vocabulary)
    naive = after_reading(after, TOKENS)[:, : len(base.vocabulary)].log_softmax(-1)
    torch.testing.assert_close(after_reading(later, TOKENS), naive)
    same = HuggingFaceLanguageModel(copy.deepcopy(base.network), base.vocabulary)
    assert aligned(base, same) == (base, same)  # one vocabulary: unchanged


@torch.no_grad()
def test_each_model_begins_texts_with_its_own_token(base, subwords):
    from tokenizers.processors import TemplateProcessing

    def beginning(token):
        tokenizer = copy.deepcopy(subwords.tokenizer)
        name = tokenizer.convert_ids_to_tokens(token)
        tokenizer.bos_token = name
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{name} $A", special_tokens=[(name, token)]
        )
        return HuggingFaceLanguageModel(base.network, SubwordVocabulary(tokenizer)).eval()

    before, after = beginning(17), beginning(18)
    earlier, later = aligned(before, after)
    assert earlier.vocabulary.bos_id == later.vocabulary.bos_id == 18
    pair = Pair.of(earlier, later, TokenScore("smoothed"))
    entered = pair.start_anywhere([(18,)])  # the begin of a document for both
    torch.testing.assert_close(entered.before.logits(), before.logits(before.start(1)))
    torch.testing.assert_close(entered.after.logits(), after.logits(after.start(1)))


def test_null_models_answer_over_the_ids_of_the_snapshots(base):
    after = tuned(base)
    both = SharedVocabulary.of(base, after)
    null = both.adapt(HuggingFaceLanguageModel(copy.deepcopy(base.network), base.vocabulary))
    assert isinstance(null, SharedIds)
    check_compatible(both.adapt(base), null)
    wider = both.adapt(tuned(base, added=[*CHAT, "<|tool|>"]))
    assert wider.vocab_size == both.width
    differences = both.differences({"before": base, "after": after})
    assert differences[0].startswith("before lacks 2 of the tokens")
    assert "added tokens" in differences[-1]
    assert SharedVocabulary.of(base, base).differences({"before": base, "after": base}) == []


def test_ids_with_different_texts_are_refused():
    def table(*words):
        even = torch.full((len(words) + 2,) * 2, 1 / (len(words) + 2))
        return TableModel(even[0], even, WordVocabulary(("<unk>", "<eos>", *words)))

    with pytest.raises(IncompatibleModels, match="vocabularies differ at token 3"):
        aligned(table("red", "blue"), table("red", "green", "lamp"))
    both = SharedVocabulary.of(table("red"), table("red", "green"))
    with pytest.raises(IncompatibleModels, match="vocabularies differ at token 3"):
        both.adapt(table("red", "blue"))
