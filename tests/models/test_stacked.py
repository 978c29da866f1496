"""Models that are asked at once answer as each of them does alone."""

from dataclasses import replace

import pytest
import torch

from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.stacked import stack
from vestige.models.white_box import WhiteBox

SHAPE = IntentSlotConfig(
    intents=("Ask", "Tell", "Pay"),
    tags=("O", "B-pin", "I-pin", "B-city", "I-city"),
    embedding_size=5,
    hidden_size=4,
    input_dropout=0.5,
    hidden_dropout=0.5,
)


def models(words: WordVocabulary, shape: IntentSlotConfig, number: int) -> list[IntentSlotModel]:
    made = []
    for seed in range(number):
        torch.manual_seed(seed)
        model = IntentSlotModel(words, shape).double().eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        made.append(model)
    return made


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("char_filters", [0, 3])
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 6), (4, 3)])
def test_a_stack_answers_as_each_model_alone(
    words: WordVocabulary, layers: int, char_filters: int, rows: int, length: int
) -> None:
    alone = models(words, replace(SHAPE, layers=layers, char_filters=char_filters), 3)
    both = stack(alone)
    assert isinstance(both, WhiteBox)
    assert both.models == 3
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, len(words), (3 * rows, length), generator=generator)
    intents = torch.randint(0, 3, (3 * rows,), generator=generator)
    tags = torch.randint(0, 5, (3 * rows, length), generator=generator)
    vectors = both.embed(tokens).requires_grad_()
    found = both.losses(vectors, intents, tags)
    weights = torch.rand(3 * rows, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((found.intent * weights + found.tags).sum(), vectors)
    for number, model in enumerate(alone):
        block = slice(number * rows, (number + 1) * rows)
        own = model.embed(tokens[block]).detach().requires_grad_()
        torch.testing.assert_close(vectors[block], own, rtol=0, atol=1e-12)
        expected = model.losses(own, intents[block], tags[block])
        torch.testing.assert_close(found.intent[block], expected.intent, rtol=0, atol=1e-10)
        torch.testing.assert_close(found.tags[block], expected.tags, rtol=0, atol=1e-10)
        joint = (expected.intent * weights[block] + expected.tags).sum()
        (expected_gradient,) = torch.autograd.grad(joint, own)
        torch.testing.assert_close(gradient[block], expected_gradient, rtol=0, atol=1e-10)


def test_no_gradient_goes_to_the_weights(words: WordVocabulary) -> None:
    alone = models(words, SHAPE, 2)
    both = stack(alone)
    vectors = both.embed(torch.tensor([[3, 4], [3, 4]])).requires_grad_()
    labels = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64)
    both.losses(vectors, *labels).joint.sum().backward()
    assert vectors.grad is not None
    assert all(weight.grad is None for model in alone for weight in model.parameters())


def test_a_stack_stays_as_it_was_made(words: WordVocabulary) -> None:
    alone = models(words, SHAPE, 2)
    both, tokens = stack(alone), torch.tensor([[3, 4], [3, 4]])
    labels = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2, dtype=torch.int64)
    before = both.losses(both.embed(tokens), *labels).joint
    for parameter in alone[0].parameters():
        torch.nn.init.zeros_(parameter)
    assert torch.equal(both.losses(both.embed(tokens), *labels).joint, before)


def test_a_stack_reads_as_its_models_do(words: WordVocabulary) -> None:
    alone = models(words, SHAPE, 2)
    assert stack(alone).read(["word3", "nobody"]) == alone[0].read(["word3", "nobody"])


def test_training_settings_may_differ(words: WordVocabulary) -> None:
    other = replace(SHAPE, input_dropout=0.0, frozen_embeddings=True)
    pair = [models(words, shape, 1)[0] for shape in (SHAPE, other)]
    assert stack(pair).models == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 5}, "hidden_size"),
        ({"layers": 1}, "layers"),
        ({"tags": ("O", "B-city", "I-city", "B-pin", "I-pin")}, "tags"),
        ({"intents": ("Ask", "Pay", "Tell")}, "intents"),
    ],
)
def test_models_of_another_shape_are_refused(
    words: WordVocabulary, change: dict[str, object], named: str
) -> None:
    pair = [models(words, shape, 1)[0] for shape in (SHAPE, replace(SHAPE, **change))]
    with pytest.raises(IncompatibleModels, match=f"models 1 and 2 cannot be stacked.*{named}"):
        stack(pair)


def test_models_of_another_vocabulary_are_refused(words: WordVocabulary) -> None:
    other = WordVocabulary((*words.words[:-1], "else"))
    pair = [models(vocabulary, SHAPE, 1)[0] for vocabulary in (words, other)]
    with pytest.raises(IncompatibleModels, match="vocabularies differ"):
        stack(pair)


def test_no_models_are_no_stack() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        stack([])


def test_rows_that_are_no_blocks_are_refused(words: WordVocabulary) -> None:
    with pytest.raises(ValueError, match="2 blocks of one size"):
        stack(models(words, SHAPE, 2)).embed(torch.tensor([[3], [4], [5]]))
