"""What every method is: two models and a budget in, ranked rows of token ids out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.models.protocols import NextToken, State

LENGTH = 48
"""Tokens of a sampled text, at most: as the samples of `vestige diff`."""


@dataclass(frozen=True)
class Row:
    """A text that a method says the update taught.

    Attributes:
        tokens: ids.
        score: by which it is ranked; higher is surer.
        fragment: whether it is shown behind all others, and never reported as found.
    """

    tokens: tuple[int, ...]
    score: float
    fragment: bool = False


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a method returned.

    Attributes:
        rows: best first.
        before, after: forward tokens of the two models.
        scores: that count as those of a null search; by default those of the rows.
    """

    rows: tuple[Row, ...]
    before: int
    after: int
    scores: tuple[float, ...] | None = None

    @property
    def null_scores(self) -> tuple[float, ...]:
        """Scores of a search where there is nothing to find."""
        return tuple(row.score for row in self.rows) if self.scores is None else self.scores


Search = Callable[[NextToken, NextToken, int, int], Found]
"""The model before, the model after, forward tokens of both together, seed."""

Mixed = Callable[[Tensor, Tensor], Tensor]
"""(n, v) log-probabilities after and before the update -> (n, v) logits to draw from."""


@dataclass(frozen=True)
class Text:
    """A text that was drawn.

    Attributes:
        tokens: ids, without what it began behind.
        later, earlier: log-probability of each after and before the update.
    """

    tokens: tuple[int, ...]
    later: tuple[float, ...]
    earlier: tuple[float, ...]


def opened(before: NextToken, after: NextToken) -> Pair:
    """The pair with a counter of its own."""
    return Pair.of(before, after, TokenScore("smoothed"))


def ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Each text once, best first, alike ones by their ids."""
    best: dict[tuple[int, ...], float] = {}
    for row in rows:
        best[row.tokens] = max(row.score, best.get(row.tokens, row.score))
    made = [Row(tokens, score) for tokens, score in best.items() if tokens]
    return tuple(sorted(made, key=lambda row: (-row.score, row.tokens)))


def log_ratio(text: Text) -> float:
    """Mean over the tokens of how much more likely the update made them, in nats."""
    pairs = zip(text.later, text.earlier, strict=True)
    return sum(later - earlier for later, earlier in pairs) / max(1, len(text.tokens))


@torch.no_grad()
def drawn(
    pair: Pair, mixed: Mixed, first: Tensor | int, *, length: int, chance: torch.Generator
) -> list[Text]:
    """Texts drawn token by token from softmax of mixed logits, until a document ends.

    Args:
        pair: the models; its counter counts what they read.
        mixed: see `Mixed`.
        first: first tokens (n,) of as many texts, or how many begin with nothing.
        length: tokens of a text at most.
        chance: of the draws.
    """
    n = first if isinstance(first, int) else len(first)
    row, tokens = torch.arange(n), torch.zeros(n, 0, dtype=torch.int64)
    state = pair.start(tokens)
    texts: list[list[tuple[int, float, float]]] = [[] for _ in range(n)]
    end = pair.vocabulary.eos_id
    for step in range(length):
        later, earlier = (one.logits().log_softmax(1) for one in (state.after, state.before))
        if step == 0 and not isinstance(first, int):
            tokens = first[:, None]
        else:
            odds = mixed(later, earlier).double().softmax(1)
            tokens = torch.multinomial(odds, 1, generator=chance)
        told = (later.gather(1, tokens)[:, 0], earlier.gather(1, tokens)[:, 0])
        going = (tokens[:, 0] != end).nonzero()[:, 0]
        for i in going.tolist():
            texts[int(row[i])].append((int(tokens[i, 0]), float(told[0][i]), float(told[1][i])))
        row, tokens = row[going], tokens[going, 0]
        if not len(row) or step + 1 == length:
            break
        state.follow(going, tokens)
    columns = [list(zip(*text, strict=True)) or [(), (), ()] for text in texts]
    return [Text(*(tuple(column) for column in each)) for each in columns]


@torch.no_grad()
def drawn_from(
    model: NextToken, number: int, *, length: int, chance: torch.Generator
) -> tuple[list[Text], int]:
    """Texts sampled from one model, and the tokens that it read.

    The texts' `earlier` is empty: the other model is not asked.
    """
    state: State = model.start(1)[torch.zeros(number, dtype=torch.int64)]
    row, read = torch.arange(number), 1
    texts: list[list[tuple[int, float]]] = [[] for _ in range(number)]
    for step in range(length):
        later = model.log_probs(state)
        tokens = torch.multinomial(later.double().exp(), 1, generator=chance)
        told = later.gather(1, tokens)[:, 0]
        going = (tokens[:, 0] != model.vocabulary.eos_id).nonzero()[:, 0]
        for i in going.tolist():
            texts[int(row[i])].append((int(tokens[i, 0]), float(told[i])))
        row, token = row[going], tokens[going, 0]
        if not len(row) or step + 1 == length:
            break
        state = model.advance(state[going], token)
        read += len(token)
    made = [
        Text(tuple(token for token, _ in text), tuple(told for _, told in text), ())
        for text in texts
    ]
    return made, read


def blocks(pair: Pair, budget: int, *, each: int, most: int = 100) -> int:
    """How many more texts the budget allows, at most `most`, where one costs `each`."""
    return min(most, (budget - sum(pair.tokens_read)) // each)
