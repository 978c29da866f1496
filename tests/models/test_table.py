"""The public test double states exactly the probabilities that it was given."""

import pytest
import torch

from vestige.models.table import TableModel

START, AFTER = [0.25, 0.75, 0.0], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]]


def test_probabilities_are_those_of_the_table() -> None:
    model = TableModel(START, AFTER)
    first = model.log_probs(model.start(2)).exp()
    torch.testing.assert_close(first, torch.tensor([START, START]))
    state = model.advance(model.start(3, anywhere=True), torch.tensor([2, 0, 1]))
    then = model.log_probs(state).exp()
    torch.testing.assert_close(then, torch.tensor([AFTER[2], AFTER[0], AFTER[1]]))


def test_an_impossible_token_has_minus_infinity() -> None:
    model = TableModel(START, AFTER)
    answer = model.log_probs(model.advance(model.start(1), torch.tensor([1])))
    assert answer.tolist() == [[-torch.inf, -torch.inf, 0.0]]


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ([0.5, 0.5], AFTER),
        ([1.0], [[1.0]]),
        (START, AFTER[:2]),
        ([0.5, 0.4, 0.0], AFTER),
        ([1.5, -0.5, 0.0], AFTER),
        ([float("nan")] * 3, AFTER),
        ([[0.5, 0.5]], AFTER),
    ],
)
def test_what_is_no_distribution_is_refused(start: list[float], after: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="start and after must"):
        TableModel(start, after)


def test_as_many_tokens_as_rows_are_needed() -> None:
    model = TableModel(START, AFTER)
    with pytest.raises(ValueError, match="tokens must have shape"):
        model.advance(model.start(2), torch.tensor([0]))
