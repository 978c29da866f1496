"""Two snapshots that read the same text in lockstep."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vestige.attacks.update.forward_tokens import ForwardTokens
from vestige.attacks.update.logit_entries import cells_above
from vestige.attacks.update.token_scores import TokenScore
from vestige.models.protocols import NextToken, State, require_numbers

CELLS_PER_SLICE = 1_280_000
"""Rows x vocabulary asked at once: two such slices of float32 stay near the cores' caches."""

LEAST_ROWS = 64
"""Rows asked at once at least: with fewer a large model would be read more than computed with."""


def most_tokens(*models: object) -> int | None:
    """The longest text that every model reads at once, in tokens; None without a limit."""
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    return min(limits, default=None)


@dataclass(frozen=True)
class PairState:
    """What both models have read; sliced and re-ordered together."""

    before: State
    after: State

    @property
    def nbytes(self) -> int:
        """Memory of both models' rows."""
        return self.before.nbytes + self.after.nbytes

    def __len__(self) -> int:
        return len(self.before)

    def __getitem__(self, index: Tensor | slice) -> "PairState":
        return PairState(self.before[index], self.after[index])


@dataclass(frozen=True)
class ModelPair:
    """The model before an update and the model after it, over one vocabulary.

    Attributes:
        before: the earlier snapshot.
        after: the later one.
        score: how a token's promotion is measured.
        cost: counts the tokens that both read.
    """

    before: NextToken
    after: NextToken
    score: TokenScore
    cost: ForwardTokens = field(default_factory=ForwardTokens, compare=False, repr=False)

    @property
    def vocab_size(self) -> int:
        return self.after.vocab_size

    @property
    def device(self) -> torch.device:
        return self.after.device

    @property
    def beginning(self) -> int | None:
        """The token that begins every document and is no part of any; None where there is none."""
        return self.after.vocabulary.bos_id

    def with_score(self, score: TokenScore) -> "ModelPair":
        """The same two snapshots, asked for another score; they share the counter."""
        return replace(self, score=score)

    def start(self, n: int, *, anywhere: bool = False) -> PairState:
        """See `NextToken.start`; a beginning is read once, for all rows."""
        self.cost.add(0 if anywhere else 1)
        return PairState(
            self.before.start(n, anywhere=anywhere), self.after.start(n, anywhere=anywhere)
        )

    def enter(self, contexts: Tensor) -> PairState:
        """The states after the first tokens of n texts, (n,) or (n, c), see `enter`."""
        return PairState(self.entered(contexts, later=False), self.entered(contexts, later=True))

    def entered(self, contexts: Tensor, *, later: bool) -> State:
        """`enter` in one of the models."""
        read = _entered_tokens(contexts, self.beginning)
        if later:
            self.cost.after += read
            return enter(self.after, contexts)
        self.cost.before += read
        return enter(self.before, contexts)

    def read(self, contexts: Tensor) -> PairState:
        """The states after the (n, c) first tokens of n texts, in one pass of each model."""
        return self.enter(contexts)

    def advance(self, state: PairState, tokens: Tensor) -> PairState:
        """See `NextToken.advance`."""
        self.cost.add(len(tokens))
        return PairState(
            self.before.advance(state.before, tokens), self.after.advance(state.after, tokens)
        )

    def gains(self, state: PairState) -> Tensor:
        """(n, v) scores of every next token. Ask in slices (`slices`): it is n x v large."""
        gains = self.score.gain(self.before.logits(state.before), self.after.logits(state.after))
        require_numbers(gains[:, 0])
        return gains

    def gains_above(self, state: PairState, floor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The cells of `gains` that exceed a floor.

        No gain exceeds what the later model alone allows: where that is under the floor, the
        earlier one is not asked. Ask in slices too.

        Args:
            state: what n rows have read.
            floor: (n,) one for each row.

        Returns:
            (k,) rows, (k,) tokens and (k,) gains, in no particular order.
        """
        later = self.score.later(self.after.logits(state.after))
        require_numbers(later[:, 0])
        may = later.amax(1) - self.score.least > floor
        if may.all():
            earlier = self.score.earlier(self.before.logits(state.before[:]))
            require_numbers(earlier[:, 0])
            return cells_above(self.score.difference(later, earlier), floor)
        rows = may.nonzero()[:, 0]
        if not len(rows):
            return rows, rows, floor[:0]
        earlier = self.score.earlier(self.before.logits(state.before[rows]))
        row, token, gain = cells_above(self.score.difference(later[rows], earlier), floor[rows])
        return rows[row], token, gain

    def slices(self, n: int) -> Iterator[slice]:
        """Slices that cover n rows, of at most `CELLS_PER_SLICE` cells or `LEAST_ROWS` rows."""
        rows = max(LEAST_ROWS, CELLS_PER_SLICE // self.vocab_size)
        return (slice(first, min(first + rows, n)) for first in range(0, n, rows))

    def token_gains(self, tokens: Tensor, *, anywhere: bool = False) -> Tensor:
        """(n, t) token ids -> (n, t) gains of each token after those before it.

        With `anywhere` the first token is context only and its gain is 0.
        """
        state = self.start(len(tokens), anywhere=anywhere)
        gains = []
        for position, column in enumerate(tokens.T):
            if anywhere and position == 0:
                gains.append(torch.zeros(len(tokens), device=self.device))
            else:
                asked = [
                    self.gains(state[rows]).gather(1, column[rows, None])[:, 0]
                    for rows in self.slices(len(tokens))
                ]
                gains.append(torch.cat(asked))
            if position + 1 < tokens.shape[1]:
                state = self.advance(state, column)
        return torch.stack(gains, 1)


def enter(model: NextToken, contexts: Tensor) -> State:
    """What a model has read at the first tokens of n texts, wherever in a document they stood.

    A model whose documents all begin with a token of their own has read that before. Where it is
    the first token itself, of every text, it is read once.

    Args:
        model: what reads.
        contexts: (n,) a token of each text, or (n, c) several.
    """
    tokens = contexts if contexts.ndim == 2 else contexts[:, None]
    beginning = model.vocabulary.bos_id
    if beginning is None:
        return model.read(model.start(len(tokens), anywhere=True), tokens)
    begun = model.start(1)[torch.zeros_like(tokens[:, 0])]
    begins = bool((tokens[:, 0] == beginning).all())
    return model.read(begun, tokens[:, 1:]) if begins else model.read(begun, tokens)


def _entered_tokens(contexts: Tensor, beginning: int | None) -> int:
    """How many tokens `enter` reads."""
    if beginning is None:
        return contexts.numel()
    first = contexts[:, 0] if contexts.ndim == 2 else contexts
    begins = bool((first == beginning).all())
    return 1 + contexts.numel() - begins * len(first)
