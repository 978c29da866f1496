"""Snapshots with more tokens, wider heads or other beginnings are asked over shared ids."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models.checkpoints import check_compatible
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.pretrained import load
from vestige.models.protocols import LanguageModel
from vestige.models.shared_ids import SharedIds, SharedVocabulary
from vestige.models.table import TableModel


def aligned(before: LanguageModel, after: LanguageModel) -> tuple[LanguageModel, LanguageModel]:
    """Two snapshots over one width and one set of ids."""
    shared = SharedVocabulary.of(before, after)
    return shared.read_by(before), shared.read_by(after)


CHAT = ["<|user|>", "<|assistant|>"]
TOKENS = torch.tensor([[5, 9, 3], [20, 7, 11]])


@pytest.fixture(params=["gpt2", "llama"])
def base(request: pytest.FixtureRequest, folders: dict[str, Path]) -> HuggingFaceLanguageModel:
    return load(folders[request.param])


def tuned(
    base: HuggingFaceLanguageModel, *, added: list[str] = CHAT, multiple: int | None = None
) -> HuggingFaceLanguageModel:
    """Another model with `added` tokens, its head padded to a multiple of something."""
    tokenizer, network = copy.deepcopy((base.vocabulary.tokenizer, base.network))
    tokenizer.add_tokens(added)
    network.resize_token_embeddings(len(tokenizer), multiple, mean_resizing=False)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
    return HuggingFaceLanguageModel(network, SubwordVocabulary(tokenizer)).eval()


def after_reading(model: LanguageModel, tokens: Tensor) -> Tensor:
    state = model.start(len(tokens))
    for column in tokens.T:
        state = model.advance(state, column)
    return model.log_probs(state)


@torch.no_grad()
def test_the_ids_that_both_have_keep_their_answers(base: HuggingFaceLanguageModel) -> None:
    own, after = len(base.vocabulary), tuned(base)
    earlier, later = aligned(base, after)
    check_compatible(earlier, later)
    assert earlier.vocab_size == later.vocab_size == own + len(CHAT)
    naive = after_reading(base, TOKENS)[:, :own].log_softmax(-1)  # without the head's padding
    answers = after_reading(earlier, TOKENS)
    torch.testing.assert_close(answers[:, :own], naive)
    assert (answers[:, own:] == -torch.inf).all()
    torch.testing.assert_close(after_reading(later, TOKENS), after_reading(after, TOKENS))


@torch.no_grad()
def test_an_id_that_a_model_lacks_is_read_as_the_end_of_a_text(
    base: HuggingFaceLanguageModel,
) -> None:
    earlier, _ = aligned(base, tuned(base))
    new, end = (torch.tensor([[5, id, 3]]) for id in (len(base.vocabulary), base.vocabulary.eos_id))
    torch.testing.assert_close(after_reading(earlier, new), after_reading(earlier, end))


@torch.no_grad()
def test_a_new_token_that_the_update_promotes_has_a_finite_gain(
    base: HuggingFaceLanguageModel,
) -> None:
    pair = Pair.of(*aligned(base, tuned(base)), TokenScore("smoothed"))
    gains = pair.gains(pair.enter([(len(base.vocabulary),), (3,)]))
    assert gains.isfinite().all()
    assert (gains[:, len(base.vocabulary) :] > 0).all()


@torch.no_grad()
def test_a_head_that_is_padded_further_is_cut_to_the_tokens(base: HuggingFaceLanguageModel) -> None:
    after = tuned(base, added=[], multiple=64)
    assert after.vocab_size % 64 == 0
    assert after.vocab_size > base.vocab_size
    earlier, later = aligned(base, after)
    assert earlier.vocab_size == later.vocab_size == len(base.vocabulary)
    naive = after_reading(after, TOKENS)[:, : len(base.vocabulary)].log_softmax(-1)
    torch.testing.assert_close(after_reading(later, TOKENS), naive)


def test_snapshots_of_one_vocabulary_are_asked_as_they_are(base: HuggingFaceLanguageModel) -> None:
    after = HuggingFaceLanguageModel(copy.deepcopy(base.network), base.vocabulary)
    assert aligned(base, after) == (base, after)


@torch.no_grad()
def test_each_begins_a_text_with_a_token_of_its_own(
    base: HuggingFaceLanguageModel, subwords: SubwordVocabulary
) -> None:
    from tokenizers.processors import TemplateProcessing

    def beginning(token: int) -> HuggingFaceLanguageModel:
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
    entered = pair.enter([(18,)])  # begins a document, and is read as each model does
    torch.testing.assert_close(entered.before.logits(), before.logits(before.start(1)))
    torch.testing.assert_close(entered.after.logits(), after.logits(after.start(1)))


def test_a_null_model_answers_over_the_ids_of_the_snapshots(base: HuggingFaceLanguageModel) -> None:
    shared = SharedVocabulary.of(base, tuned(base))
    null = shared.read_by(HuggingFaceLanguageModel(copy.deepcopy(base.network), base.vocabulary))
    assert isinstance(null, SharedIds)
    check_compatible(shared.read_by(base), null)
    wider = shared.read_by(tuned(base, added=[*CHAT, "<|tool|>"]))
    assert wider.vocab_size == shared.width


def test_what_differs_is_said(base: HuggingFaceLanguageModel) -> None:
    after = tuned(base)
    told = SharedVocabulary.of(base, after).differences({"before": base, "after": after})
    assert told[0].startswith("before lacks 2 of the tokens")
    assert "added tokens" in told[-1]
    assert SharedVocabulary.of(base, base).differences({"before": base, "after": base}) == []


def test_ids_that_stand_for_other_texts_are_refused() -> None:
    def table(*words: str) -> TableModel:
        size = len(words) + 2
        even = torch.full((size, size), 1 / size)
        return TableModel(even[0], even, WordVocabulary(("<unk>", "<eos>", *words)))

    with pytest.raises(IncompatibleModels, match="vocabularies differ at token 3"):
        aligned(table("red", "blue"), table("red", "green", "lamp"))
    shared = SharedVocabulary.of(table("red"), table("red", "green"))
    with pytest.raises(IncompatibleModels, match="vocabularies differ at token 3"):
        shared.read_by(table("red", "blue"))
