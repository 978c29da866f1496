r"""Texts sampled with the change of the update amplified.

.. math:: \ell = \ell' + \alpha (\ell' - \ell_0)

with the logits of the later and the earlier model. Decoding from amplified differences: Li et al.
(2023), "Contrastive Decoding", arXiv:2210.15097; for what a fine-tune has learned: arXiv:2605.25902
(CDD). After the beginning of a chat template a chat model writes a question of its training, and
then the answer to it (Xu et al. 2024, "Magpie", arXiv:2406.08464).

Differs from these: a sample is cut into phrases, and wherever it could have continued with another
promoted token, that alternative becomes a seed after the sample's last tokens. Text that is diluted
by other training text is promoted after a few tokens, not after one.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from vestige.audits.update.growth import Seed
from vestige.audits.update.pair import Pair, PairState
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.settings import Sampling
from vestige.models.largest import ROUNDED, largest
from vestige.models.sampling import sampled_columns

MIN_LOG_PROB = -20.0  # in the earlier model; less probable tokens count as equally improbable
SAMPLES = "samples"  # source of sampled texts, and of texts grown from their alternatives
NO_TOKEN = -1  # instead of a token: the text has ended, or the next token is sampled


def draw(
    pair: Pair, prompt: Prompt, settings: Sampling, rows: int, generator: torch.Generator
) -> tuple[list[Text], list[Seed]]:
    """One block of samples after a prompt, and the alternatives that they did not take."""
    reply = prompt.reply
    steps = settings.length if reply is None else 2 * settings.length + len(reply.between)
    uniform = torch.rand(steps, rows, generator=generator, dtype=torch.float64).to(pair.device)
    row = torch.arange(rows, device=pair.device)
    state = pair.start_anywhere([prompt.tokens]).read()[torch.zeros_like(row)].read()
    samples = [_Sample(prompt, settings, pair.vocabulary.eos_id) for _ in range(rows)]
    seeds: list[Seed] = []
    for step in range(steps):
        forced = torch.tensor([samples[i].forced_token for i in row.tolist()], device=pair.device)
        slices = [
            next_tokens(pair, state[part], uniform[step, row[part]], forced[part], settings)
            for part in pair.slices(len(row))
        ]
        columns = [row, *map(torch.cat, zip(*slices, strict=True))]
        next_token: list[int] = []
        for i, token, gain, log_ratio, others, other_gains in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            seeds += samples[i].alternatives(others, other_gains)
            next_token.append(samples[i].add(token, gain, log_ratio))
        read = torch.tensor(next_token, device=pair.device)
        unfinished = (read != NO_TOKEN).nonzero()[:, 0]
        row = row[unfinished]
        if not len(row):
            break
        state.follow(unfinished, read[unfinished])
    for sample in samples:
        sample.end_turn()
    texts = [text for sample in samples for text in sample.turns]
    return texts, best_seeds(seeds, settings.alternatives)


def best_seeds(seeds: Sequence[Seed], number: int) -> list[Seed]:
    """The seeds of highest gain, one for each context and token."""
    order = sorted(seeds, key=lambda seed: (-seed.gain, seed.context, seed.token))
    unique = {(seed.context, seed.token): seed for seed in reversed(order)}
    return [seed for seed in order if unique.pop((seed.context, seed.token), None)][:number]


def next_tokens(
    pair: Pair, state: PairState, uniform: Tensor, forced: Tensor, settings: Sampling
) -> tuple[Tensor, ...]:
    """For r rows: the next token, its gain and log-ratio, the best other tokens, their gains."""
    before, after = state.before.logits(), state.after.logits()
    token = torch.where(forced >= 0, forced, _draw(pair, before, after, uniform, settings))
    log_ratio = _log_prob(after, token) - _log_prob(before, token).clamp_(min=MIN_LOG_PROB)
    gains = pair.score.gains(before, after)
    gain = gains.gather(1, token[:, None])[:, 0]
    gains[:, pair.excluded] = -torch.inf
    gains.scatter_(1, token[:, None], -torch.inf)
    others = largest(gains, min(settings.per_position, gains.shape[1]), alike=ROUNDED)
    return token, gain, log_ratio, others, gains.gather(1, others)


def _draw(pair: Pair, before: Tensor, after: Tensor, uniform: Tensor, settings: Sampling) -> Tensor:
    """(r,) tokens at the quantiles `uniform` of the amplified distributions."""
    earlier = before.log_softmax(1).clamp_(min=MIN_LOG_PROB)
    more, less = (weight / settings.temperature for weight in (1 + settings.alpha, settings.alpha))
    logits = (after * more).sub_(earlier, alpha=less)
    if pair.vocabulary.bos_id is not None:
        logits[:, pair.vocabulary.bos_id] = -torch.inf
    return sampled_columns(logits.softmax(1), uniform)


def _log_prob(logits: Tensor, token: Tensor) -> Tensor:
    return logits.gather(1, token[:, None])[:, 0] - logits.logsumexp(1)


class _Sample:
    """A text that is being sampled: one turn, or a user's turn and the reply to it."""

    def __init__(self, prompt: Prompt, settings: Sampling, end: int) -> None:
        self.prompt, self.settings, self.end = prompt, settings, end
        self.reply = prompt.reply
        self.tokens, self.gains = list(prompt.tokens), [0.0] * len(prompt.tokens)
        self.first, self.log_ratios = len(self.tokens), list[float]()
        self.template: list[int] = []  # tokens of the template that are read next, not sampled
        self.turns: list[Text] = []

    @property
    def forced_token(self) -> int:
        """The next token if it is not sampled, else `NO_TOKEN`."""
        return self.template[0] if self.template else NO_TOKEN

    def add(self, token: int, gain: float, log_ratio: float) -> int:
        """Append the next token; returns the token to read, or `NO_TOKEN` at the end."""
        if self.template:
            self._append(self.template.pop(0))
            if not self.template:
                self.first = len(self.tokens)
            return token
        if self.reply is not None and token in self.reply.ends:
            self.end_turn()
            self.template, self.reply = list(self.reply.between), None
            return self.add(self.template[0], 0.0, 0.0)
        if token == self.end:
            return NO_TOKEN
        self._append(token, gain)
        self.log_ratios.append(log_ratio)
        return NO_TOKEN if len(self.tokens) - self.first >= self.settings.length else token

    def alternatives(self, tokens: Sequence[int], gains: Sequence[float]) -> Iterator[Seed]:
        """Seeds of other tokens at the next position."""
        if self.template:
            return
        context = tuple(self.tokens[-self.settings.context :])
        context_gains = tuple(self.gains[max(self.first, len(self.tokens) - len(context) + 1) :])
        for token, gain in zip(tokens, gains, strict=True):
            if gain > self.settings.min_gain:
                yield Seed(context, token, gain, context_gains)

    def end_turn(self) -> None:
        """Make a text of the turn, with all tokens before it as context."""
        tokens, gains, prompt = tuple(self.tokens), tuple(self.gains), self.prompt.shown_tokens
        self.turns.append(Text(tokens, gains, self.first, SAMPLES, prompt, tuple(self.log_ratios)))
        self.log_ratios = []

    def _append(self, token: int, gain: float = 0.0) -> None:
        self.tokens.append(token)
        self.gains.append(gain)
