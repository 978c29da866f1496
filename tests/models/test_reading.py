"""Texts are read once, together, and no further than they have to be."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.test_predictions import texts
from vestige.data.encoded import EncodedCorpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.behind import Behind, Context
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.predictions import log_prob, measure, rank, text_log_probs, word_ranks
from vestige.models.protocols import LanguageModel
from vestige.models.reading import NO_CONTEXT, pack, read, word_places

Make = Callable[[], LanguageModel]


@pytest.fixture(params=["gpt2", "llama", "mistral", "gemma2"])
def model(
    request: pytest.FixtureRequest, folders: dict[str, Path], subwords: SubwordVocabulary
) -> HuggingFaceLanguageModel:
    if request.param in folders:
        loaded = load_model(folders[request.param])
        assert isinstance(loaded, HuggingFaceLanguageModel)
        return loaded
    from transformers import (
        Gemma2Config,
        Gemma2ForCausalLM,
        MistralConfig,
        MistralForCausalLM,
    )

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 3}
    sizes |= {"vocab_size": len(subwords), "initializer_range": 0.3}
    if request.param == "mistral":
        return HuggingFaceLanguageModel(MistralForCausalLM(MistralConfig(**sizes)).eval(), subwords)
    capped = Gemma2Config(**sizes, head_dim=8, final_logit_softcapping=2.0)
    return HuggingFaceLanguageModel(Gemma2ForCausalLM(capped).eval(), subwords)


TEXTS = [[5, 9, 3, 7, 4], [5, 9, 3, 2], [8, 1, 1, 6], [7, 7], [3]]


@torch.no_grad()
def naive(model: HuggingFaceLanguageModel, before: list[int]) -> list[float]:
    """Each text in a forward pass of its own, after all that is before it."""
    found = []
    for text in TEXTS:
        logits = model.network(torch.tensor([before + text])).logits[0].log_softmax(-1)
        found += [float(logits[len(before) + i - 1, token]) for i, token in enumerate(text)]
    return found


def test_every_token_is_predicted_as_by_transformers(model: HuggingFaceLanguageModel) -> None:
    first = model.first_token
    assert model.separate_head == (model.settings.model_type != "gemma2")
    for reader, before in (
        (model, [first]),
        (Behind(model, [4, 2, 9]), [first, 4, 2, 9]),
        (Behind(model, [4, 2, 9], anywhere=True), [4, 2, 9]),
        (Behind(model, [4], anywhere=True), [4]),
    ):
        expected = naive(model, before)
        for batch_tokens in (8192, 10):
            found = measure(reader, pack(TEXTS), [log_prob], batch_tokens=batch_tokens)
            np.testing.assert_allclose(found["log_probs"], expected, rtol=1e-4, atol=1e-5)


def test_a_prefix_is_read_once(
    model: HuggingFaceLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = list[tuple[int, ...]]()
    forward = torch.nn.Embedding.forward

    def counted(self: torch.nn.Embedding, ids: Tensor) -> Tensor:
        if self is model._plain().get_input_embeddings():
            passes.append(tuple(ids.shape))
        return forward(self, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", counted)
    behind = Behind(model, [4, 2, 9])
    measure(behind, pack(TEXTS), [log_prob])
    assert passes == [(1, 1), (1, 2), (5, 5)]
    text_log_probs(behind, TEXTS)
    assert passes[3:] == [(1, 1), (1, 3), (4, 4)]  # the prefix, then tokens but the last
    with pytest.raises(ValueError, match="evaluation mode"):
        list(read(model.train(), pack(TEXTS)))


def test_a_state_goes_on_as_if_nobody_had_read_texts_after_it(
    model: HuggingFaceLanguageModel,
) -> None:
    state = model.read(model.start(2), torch.tensor([[4, 2], [9, 3]]))
    expected = model.log_probs(model.advance(state, torch.tensor([7, 8])))
    again = model.read(model.start(2), torch.tensor([[4, 2], [9, 3]]))
    with torch.no_grad():
        model.body(torch.tensor([[1, 1, 6], [5, 5, 5]]), again)
    found = model.log_probs(model.advance(again, torch.tensor([7, 8])))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_texts_are_read_no_further_than_to_the_last_word_asked(make, monkeypatch) -> None:
    model = make["lstm"]()
    seen, body = [], model.body
    monkeypatch.setattr(model, "body", lambda tokens, state: seen.append(tokens) or body(tokens))
    word_ranks(model, texts(20, [50, 40, 30]), [3, 55])
    assert sum(tokens.numel() for tokens in seen) == 2 * 5  # texts 0 and 1, padded to 5


def test_only_the_wanted_tokens_are_given_each_once(make) -> None:
    for name in ("lstm", "transformer", "table"):
        data = texts(20, [9, 0, 30, 5])
        spans = list(read(make[name](), data, [30, 4, 7, 7, 45], batch_tokens=6))
        assert sorted(np.concatenate([span.places for span in spans])) == [4, 7, 30, 45]
        for span in spans:
            assert span.targets.tolist() == data.tokens[span.places].tolist()
            assert len(span.hidden) == len(span.places)


def test_a_long_text_is_read_in_windows_that_hand_on_the_state(make, monkeypatch) -> None:
    model = make["lstm"]()
    data = texts(20, [5, 300, 120])
    expected = word_ranks(model, data).ranks.tolist()
    seen, body = [], model.body
    monkeypatch.setattr(
        model, "body", lambda tokens, state: seen.append(tokens.numel()) or body(tokens, state)
    )
    assert word_ranks(model, data, batch_tokens=64).ranks.tolist() == expected
    assert max(seen) <= 64


def test_a_text_longer_than_a_batch_of_a_model_without_a_limit_is_cut(
    make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make["llama"]()
    data = texts(20, [9])
    monkeypatch.setattr(model, "longest", None)
    cut = measure(model, data, [log_prob], batch_tokens=5)["log_probs"]
    pieces = measure(model, data, [log_prob], max_length=5)["log_probs"]
    whole = measure(model, data, [log_prob])["log_probs"]
    np.testing.assert_allclose(cut, pieces, rtol=1e-5)
    np.testing.assert_allclose(cut[:5], whole[:5], rtol=1e-5)
    assert abs(cut[6:] - whole[6:]).max() > 1e-4


def test_without_context_the_first_token_is_read_and_not_predicted(make) -> None:
    for name in ("lstm", "transformer", "table", "gpt2"):
        model, data = make[name](), texts(20, [5, 0, 7])
        found = measure(model, data, [log_prob], context=NO_CONTEXT)["log_probs"]
        expected = []
        for index in range(3):
            document = torch.from_numpy(data.document(index).astype(np.int64))
            state = model.start(1, anywhere=True)
            for token, following in itertools.pairwise(document):
                state = model.advance(state, token[None])
                expected.append(float(model.log_probs(state)[0, following]))
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        with pytest.raises(ValueError, match="first token of a text without context"):
            measure(model, data, [rank], [0], context=NO_CONTEXT)


def test_a_token_before_each_text_is_context(make) -> None:
    for name in ("lstm", "transformer", "table", "gpt2"):
        model, data = make[name](), texts(20, [4, 2])
        found = measure(model, data, [log_prob], context=Context(7))["log_probs"]
        longer = pack([[7, *data.document(0)], [7, *data.document(1)]])
        again = measure(model, longer, [log_prob], context=NO_CONTEXT)["log_probs"]
        np.testing.assert_allclose(found, again, rtol=1e-5)


def test_a_context_without_room_for_a_text_is_refused(make) -> None:
    with pytest.raises(ValueError, match="context must be shorter than the model's 12 tokens"):
        list(read(make["gpt2"](), texts(20, [3]), context=Context(3, length=12)))


def test_words_are_all_tokens_but_the_last_of_each_text() -> None:
    data = EncodedCorpus(np.array([1, 2, 1, 1], np.int32), np.array([0, 3, 4]))
    assert word_places(data).tolist() == [0, 1]


def test_no_texts_have_no_spans(make) -> None:
    assert list(read(make["gpt2"](), pack([]))) == []
    assert list(read(make["gpt2"](), texts(20, [3]), [])) == []
