"""Whole texts at once give the logits that one token at a time gives, and so does transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vestige.data.subwords import SubwordVocabulary
from vestige.models import next_logits as module
from vestige.models.behind import Behind
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.next_logits import next_logits
from vestige.models.protocols import NextToken

TEXTS = [[5, 9, 3, 7, 4], [5, 9, 3, 2], [8, 1, 1, 6], [7, 7], [3]]
LENGTHS = [len(text) for text in TEXTS]


@pytest.fixture(params=["gpt2", "llama", "mistral"])
def model(
    request: pytest.FixtureRequest, folders: dict[str, Path], subwords: SubwordVocabulary
) -> HuggingFaceLanguageModel:
    if request.param != "mistral":
        loaded = load_model(folders[request.param])
        assert isinstance(loaded, HuggingFaceLanguageModel)
        return loaded
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 3}
    shape = MistralConfig(vocab_size=len(subwords), initializer_range=0.3, **sizes, **heads)
    return HuggingFaceLanguageModel(MistralForCausalLM(shape).eval(), subwords)


def padded() -> Tensor:
    """With ids behind the ends that nobody may look at."""
    return torch.tensor([text + [11] * (5 - len(text)) for text in TEXTS])


def told(model: NextToken, cells: int = 2**20) -> Tensor:
    """(n, t) log-probabilities of the texts' tokens; NaN where none was asked."""
    tokens = padded()
    found = torch.full((tokens.numel(),), torch.nan)
    for places, rows, logits in next_logits(model, tokens, torch.tensor(LENGTHS), cells=cells):
        assert found[places].isnan().all()  # nothing is asked twice
        found[places] = logits.log_softmax(1)[rows, tokens.flatten()[places]]
    return found.view(tokens.shape)


def test_the_beginning_of_a_text_is_read_once(
    model: HuggingFaceLanguageModel, monkeypatch: pytest.MonkeyPatch
):
    read, start = list[int](), model.start
    monkeypatch.setattr(model, "start", lambda n: read.append(n) or start(n))
    told(model)
    assert read == [1]


@torch.no_grad()
def naive(model: HuggingFaceLanguageModel, before: list[int]) -> Tensor:
    """Each text in a forward pass of its own, behind all that stands before it."""
    found = torch.full((len(TEXTS), 5), torch.nan)
    for row, text in enumerate(TEXTS):
        logits = model.network(torch.tensor([before + text])).logits[0].log_softmax(-1)
        for place, token in enumerate(text):
            found[row, place] = logits[len(before) + place - 1, token]
    return found


def test_every_token_is_told_as_by_a_pass_over_its_own_text(
    model: HuggingFaceLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model.reads_whole
    first = model.first_token
    for asked, before in (
        (model, [first]),
        (Behind(model, [4, 2, 9]), [first, 4, 2, 9]),
        (Behind(model, [4, 2, 9], anywhere=True), [4, 2, 9]),
    ):
        expected = naive(model, before)
        found = told(asked)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
        sliced = told(asked, cells=3 * model.vocab_size)
        torch.testing.assert_close(sliced, found, rtol=1e-5, atol=1e-6, equal_nan=True)
        with monkeypatch.context() as patched:
            patched.setattr(module, "POSITIONS", 10)
            several = told(asked)
        torch.testing.assert_close(several, found, rtol=1e-5, atol=1e-5, equal_nan=True)
        with monkeypatch.context() as patched:
            patched.setattr(HuggingFaceLanguageModel, "reads_whole", False)
            slowly = told(asked)
        torch.testing.assert_close(slowly, found, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_state_goes_on_as_if_nobody_had_read_whole_texts_behind_it(
    model: HuggingFaceLanguageModel,
) -> None:
    state = model.read(model.start(2), torch.tensor([[4, 2], [9, 3]]))
    expected = model.log_probs(model.advance(state, torch.tensor([7, 8])))
    again = model.read(model.start(2), torch.tensor([[4, 2], [9, 3]]))
    passed = model.after_each(again, torch.tensor([[1, 1, 6], [5, 5, 5]]))
    assert len(passed) == 6
    assert passed.nbytes == passed.output.nbytes  # no keys are kept
    found = model.log_probs(model.advance(again, torch.tensor([7, 8])))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_texts_are_read_in_one_pass_and_dropout_is_refused(
    model: HuggingFaceLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[int, ...]] = []
    whole = HuggingFaceLanguageModel.after_each

    def counted(self: HuggingFaceLanguageModel, state: Any, tokens: Tensor) -> Any:
        passes.append(tuple(tokens.shape))
        return whole(self, state, tokens)

    monkeypatch.setattr(HuggingFaceLanguageModel, "after_each", counted)
    told(model)
    assert passes == [(5, 4)]
    with pytest.raises(ValueError, match="evaluation mode"):
        model.train().after_each(model.start(1), torch.tensor([[1]]))


def test_no_texts_have_no_logits(model: HuggingFaceLanguageModel) -> None:
    none = torch.empty(0, 3, dtype=torch.int64)
    assert list(next_logits(model, none, torch.empty(0, dtype=torch.int64), cells=9)) == []
