"""Each token's log-probability is what one look-up at a time says, however it is sliced."""

import math

import pytest
import torch

from vestige.data.vocabulary import WordVocabulary
from vestige.models import sequence_scores
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.sequence_scores import sequence_log_probs
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig

WORDS = WordVocabulary(("<unk>", "<eos>", *(f"word{i}" for i in range(18))))


def table() -> LanguageModel:
    rows = torch.rand(21, 20, generator=torch.Generator().manual_seed(0)).softmax(-1)
    return TableModel(rows[0], rows[1:])


def lstm() -> LanguageModel:
    torch.manual_seed(0)
    shape = LSTMConfig(embedding_size=8, hidden_size=8, initial_range=0.5, dropout_out=0.5)
    return LSTMLanguageModel(WORDS, shape)


def transformer() -> LanguageModel:
    torch.manual_seed(0)
    shape = TransformerConfig(layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=12)
    return CausalTransformer(WORDS, shape).eval()


@pytest.fixture(params=[table, lstm, transformer])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    built: LanguageModel = request.param()
    return built


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(0, 20, (9, 5), generator=torch.Generator().manual_seed(1))


def test_every_token_is_scored_given_all_those_before_it(
    model: LanguageModel, tokens: torch.Tensor
) -> None:
    expected = torch.empty(9, 5)
    for row, sequence in enumerate(tokens):
        state = model.start(1)
        for position, token in enumerate(sequence):
            expected[row, position] = model.log_probs(state)[0, token]
            state = model.advance(state, token[None])
    answers = sequence_log_probs(model, tokens)
    assert answers.dtype == torch.float32
    torch.testing.assert_close(answers, expected, rtol=1e-5, atol=1e-5)


def test_slices_change_nothing(
    model: LanguageModel, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sequence_log_probs(model, tokens)
    monkeypatch.setattr(sequence_scores, "_CELLS", 3 * model.vocab_size)
    torch.testing.assert_close(sequence_log_probs(model, tokens, rows=4), whole)


def test_the_probabilities_of_all_sequences_sum_to_one(model: LanguageModel) -> None:
    pairs = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    total = sequence_log_probs(model, pairs).double().sum(1).exp().sum()
    assert float(total) == pytest.approx(1.0, abs=1e-5)


def test_what_a_model_rules_out_has_the_logarithm_of_nothing() -> None:
    model = TableModel([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]])
    answers = sequence_log_probs(model, torch.tensor([[0, 1]]))
    assert answers.tolist() == [[pytest.approx(math.log(0.5)), -math.inf]]


def test_no_sequences_get_no_scores() -> None:
    assert sequence_log_probs(table(), torch.empty(0, 3, dtype=torch.int64)).shape == (0, 3)


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        (torch.zeros(3, dtype=torch.int64), r"shape \(3,\)"),
        (torch.zeros(3, 0, dtype=torch.int64), r"shape \(3, 0\)"),
        (torch.zeros(3, 2), "float32"),
        (torch.tensor([[0, 20]]), "0 to 20"),
        (torch.tensor([[0, -1]]), "-1 to 0"),
    ],
)
def test_what_are_no_ids_is_refused(tokens: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        sequence_log_probs(table(), tokens)
