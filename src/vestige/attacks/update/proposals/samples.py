r"""Texts sampled while what the update changed is amplified: contrastive decoding of two snapshots.

.. math:: \ell = \ell' + \alpha (\ell' - \ell_0)

with the logits of the later and of the earlier model, drawn from softmax(l / temperature). Decoding
from amplified differences: Li et al. (2023), "Contrastive Decoding", arXiv:2210.15097; for what a
fine-tune has learnt: arXiv:2605.25902 (CDD).

Differs from these: a sample is no answer. It is cut at the weak joints of our score, what remains
are phrases; and wherever it might have gone another way that the update promoted, the sample's last
tokens are the context in which that way is followed. What an update has diluted with other text is
promoted behind a few tokens and not behind one. Behind a user's turn a sample goes on into the
answer: a chat model that is given its template's beginning writes a question of its training (Xu et
al. 2024, "Magpie", arXiv:2406.08464), and behind that question it says what it has learnt.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.update import extension
from vestige.attacks.update.extension import BLOCK, Seed
from vestige.attacks.update.forward_tokens import Passes, Work
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.phrases import ScoredText
from vestige.attacks.update.proposals.protocol import Ground, Outcome, Turn, Unit, Units
from vestige.models.largest import ROUNDED, largest
from vestige.models.sampling import drawn

RULED_OUT = -20.0
"""Log-probability below which tokens are alike to the earlier model."""

OVER = -1
"""No token: the text has ended, or nothing is given."""

FRESH = 0.25
"""Share of the ways that no phrase has told by then: measured, for the plan alone."""

MOST_BLOCKS = 8
"""Blocks drawn for each that was planned, at most, however short documents are."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Contrastive samples behind each start, and the ways they did not take.

    Attributes:
        samples: texts drawn, over all starts together; at least one of each, and more of them
            where documents end before `length`.
        length: tokens of each, at most; the end of a document ends it. Of each turn, where it is
            a dialogue.
        alpha: how much of the change is added to the later model's logits.
        temperature: of the softmax that is drawn from.
        alternatives: other tokens that are followed, best first, over all samples.
        each: tokens considered at every position.
        least: gain that a token needs to be considered.
        context: tokens of the sample that are read before an alternative.
        toll: of a token while an alternative grows; what grew is cut by the search's own.
        block: samples drawn side by side.
    """

    name: ClassVar[str] = "samples"
    samples: int = 400
    length: int = 48
    alpha: float = 0.5
    temperature: float = 1.0
    alternatives: int = 400
    each: int = 4
    least: float = 0.6
    context: int = 4
    toll: float = 0.7
    block: int = 100

    def __post_init__(self) -> None:
        _validate.positive(samples=self.samples, length=self.length, each=self.each)
        _validate.positive(temperature=self.temperature, context=self.context, block=self.block)
        _validate.at_least(0, alpha=self.alpha, alternatives=self.alternatives)

    def units(self, ground: Ground) -> Units:
        """Samples in blocks, then blocks of the ways that none of them took.

        Where documents are short, more are drawn, until they have the tokens of whole samples.
        """
        ways: list[Seed] = []
        for place, start in enumerate(ground.starts):
            turn = ground.turns.get(start)
            left = self._tokens * self._share(len(ground.starts), place)
            drawn, read = 0, 0
            for number in range(MOST_BLOCKS * len(self._blocks(len(ground.starts), place))):
                mean = max(1.0, read / drawn) if drawn else self._tokens
                rows = min(self.block, math.ceil((left - read) / mean))
                if rows <= 0:
                    break
                key = f"samples/{place}/{number}"
                outcome = yield Unit(key, partial(self.block_of, ground, start, rows, key))
                ways += outcome.seeds
                drawn += rows
                read += sum(self._read(text, start, turn) for text in outcome.texts)
        best = _best(ways, self.alternatives)
        for number, first in enumerate(range(0, self.alternatives, BLOCK)):
            run = partial(ground.grown, best[first : first + BLOCK], self.name, toll=self.toll)
            yield Unit(f"samples/grown/{number}", run)

    def planned(self, pair: ModelPair, starts: Sequence[tuple[int, ...]]) -> Work:
        """The samples, none of them ended, and their alternatives."""
        name, parts = self.name, []
        for place, start in enumerate(starts):
            blocks = self._blocks(len(starts), place)
            rows = sum(blocks) / len(blocks)
            read = Passes(proposal=name, kind="prefill", rows=1, tokens=len(start),
                          count=len(blocks), asked=1)  # fmt: skip
            drawn = Passes(proposal=name, kind="decode", rows=rows,
                           count=self._tokens * len(blocks), behind=len(start) + self.length / 2,
                           asked=rows)  # fmt: skip
            parts.append(Work(len(blocks), (read, drawn)))
        fresh = round(FRESH * self.alternatives)
        grown = extension.expected(fresh, proposal=name, beam=1, context=self.context)
        return Work.together([*parts, Work(-(-self.alternatives // BLOCK), grown)])

    @property
    def _tokens(self) -> int:
        """Forward tokens of a sample that no end of a document ends: its last is not read."""
        return max(1, self.length - 1)

    def _read(self, text: ScoredText, start: tuple[int, ...], turn: Turn | None) -> int:
        """Forward tokens of a turn; what stands between two is counted with the second."""
        own = min(self._tokens, len(text.tokens) - text.first)
        return own if turn is None or text.first == len(start) else own + len(turn.then)

    def _share(self, starts: int, place: int) -> int:
        return max(1, len(range(place, self.samples, starts)))

    def _blocks(self, starts: int, place: int) -> list[int]:
        """Rows of each block of samples behind a start, none of which ends before its length."""
        share = self._share(starts, place)
        return [min(self.block, share - first) for first in range(0, share, self.block)]

    def block_of(self, ground: Ground, start: tuple[int, ...], rows: int, key: str) -> Outcome:
        """One block of samples, and the ways not taken."""
        pair, turn = ground.pair, ground.turns.get(start)
        steps = self.length if turn is None else 2 * self.length + len(turn.then)
        chance = torch.rand(steps, rows, generator=ground.generator(key), dtype=torch.float64)
        chance = chance.to(pair.device)
        state = pair.read(torch.tensor([start], device=pair.device))
        row = torch.arange(rows, device=pair.device)
        state = state[torch.zeros_like(row)]
        samples = [_Sample(start, ground.end, self.length, turn) for _ in range(rows)]
        ways: list[Seed] = []
        for step in range(steps):
            given = torch.tensor([samples[i].given for i in row.tolist()], device=pair.device)
            parts = [
                self._next(ground, state[part], chance[step, row[part]], given[part])
                for part in pair.slices(len(row))
            ]
            token, gain, ratio, others, high = (
                torch.cat(each) for each in zip(*parts, strict=True)
            )
            for i, *rest in _rows(row, others, high):
                ways += samples[i].ways(*rest, context=self.context, least=self.least)
            read = torch.tensor(
                [samples[i].read(*rest) for i, *rest in _rows(row, token, gain, ratio)],
                device=pair.device,
            )
            going = (read != OVER).nonzero()[:, 0]
            row, token = row[going], read[going]
            if not len(row):
                break
            state = pair.advance(state[going], token)
        prompt = ground.prompt(start)
        texts = tuple(text for sample in samples for text in sample.texts(self.name, prompt))
        return Outcome(texts, tuple(_best(ways, self.alternatives)))

    def _next(
        self, ground: Ground, state: PairState, chance: Tensor, given: Tensor
    ) -> tuple[Tensor, ...]:
        """For r rows: the token drawn, its gain and log-ratio, the best others and their gains."""
        pair = ground.pair
        before, after = pair.before.logits(state.before), pair.after.logits(state.after)
        token = self._draw(before, after, chance, pair.beginning)
        token = torch.where(given >= 0, given, token)
        later, earlier = (_log_of(logits, token) for logits in (after, before))
        ratio = later - earlier.clamp_(min=RULED_OUT)
        gains = pair.score.gain(before, after)
        gain = gains.gather(1, token[:, None])[:, 0]
        gains[:, ground.never] = -torch.inf
        gains.scatter_(1, token[:, None], -torch.inf)
        others = largest(gains, min(self.each, gains.shape[1]), alike=ROUNDED)
        return token, gain, ratio, others, gains.gather(1, others)

    def _draw(self, before: Tensor, after: Tensor, chance: Tensor, never: int | None) -> Tensor:
        """(r,) tokens at the places `chance` of the amplified distributions' cumulated ones."""
        # what the earlier model rules out is amplified no more than what it hardly knows
        earlier = before.log_softmax(1).clamp_(min=RULED_OUT)
        later, less = (1 + self.alpha) / self.temperature, self.alpha / self.temperature
        logits = (after * later).sub_(earlier, alpha=less)
        if never is not None:
            logits[:, never] = -torch.inf
        return drawn(logits.softmax(1), chance)


class _Sample:
    """A text that is being drawn behind a start, with the answer where it is a user's turn."""

    def __init__(
        self, start: tuple[int, ...], end: int, length: int, turn: Turn | None = None
    ) -> None:
        self.end, self.length, self.turn = end, length, turn
        self.tokens, self.gains, self.ratios = list(start), [0.0] * len(start), list[float]()
        self.first, self.waiting = len(start), list[int]()
        self.told: list[tuple[int, int, tuple[float, ...]]] = []

    @property
    def given(self) -> int:
        """The next token where it is not drawn, else a negative number."""
        return self.waiting[0] if self.waiting else OVER

    def read(self, token: int, gain: float, ratio: float) -> int:
        """One more token; what is read for it, `OVER` where the text ends."""
        if self.waiting:
            self._add(self.waiting.pop(0))
            if not self.waiting:
                self.first = len(self.tokens)
            return token
        if self.turn is not None and token in self.turn.ends:
            self._end()
            self.waiting, self.turn = list(self.turn.then), None
            return self.read(self.waiting[0], 0.0, 0.0)
        if token == self.end:
            return OVER
        self._add(token, gain)
        self.ratios.append(ratio)
        return OVER if len(self.tokens) - self.first >= self.length else token

    def _add(self, token: int, gain: float = 0.0) -> None:
        self.tokens.append(token)
        self.gains.append(gain)

    def _end(self) -> None:
        """The turn is over."""
        self.told.append((self.first, len(self.tokens), tuple(self.ratios)))
        self.ratios = []

    def ways(
        self, tokens: Sequence[int], gains: Sequence[float], *, context: int, least: float
    ) -> Iterator[Seed]:
        """Other tokens than the next one, behind the last ones."""
        if self.waiting:
            return
        behind = tuple(self.tokens[-context:])
        known = tuple(self.gains[max(self.first, len(self.tokens) - len(behind) + 1) :])
        for token, gain in zip(tokens, gains, strict=True):
            if gain > least:
                yield Seed(behind, token, gain, known)

    def texts(self, proposal: str, prompt: tuple[int, ...]) -> Iterator[ScoredText]:
        """What was drawn, each turn behind what was read before."""
        self._end()
        for first, stop, ratios in self.told:
            tokens, gains = tuple(self.tokens[:stop]), tuple(self.gains[:stop])
            yield ScoredText(tokens, gains, first, proposal, prompt, ratios)


def _log_of(logits: Tensor, token: Tensor) -> Tensor:
    """(r,) log-probabilities of one token of each row of logits (r, v)."""
    return logits.gather(1, token[:, None])[:, 0] - logits.logsumexp(1)


def _rows(*columns: Tensor) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _best(ways: Sequence[Seed], number: int) -> list[Seed]:
    """The seeds of highest gain, one for each context and token."""
    order = sorted(ways, key=lambda way: (-way.gain, way.context, way.token))
    unique = {(way.context, way.token): way for way in reversed(order)}
    return [way for way in order if unique.pop((way.context, way.token), None)][:number]
