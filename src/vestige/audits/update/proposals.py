"""Where phrases may begin: in samples, at promoted first tokens, at promoted pairs of tokens.

Each proposal reads texts in units of work. All share one extension, one folding and one E-value.
"""

from dataclasses import replace
from functools import partial
from math import ceil

import torch

from vestige.audits.update.growth import Seed
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.samples import SAMPLES, best_seeds, draw
from vestige.audits.update.settings import Sampling, Settings, share
from vestige.audits.update.units import Outcome, Run
from vestige.models.largest import ROUNDED, largest, largest_by

OPENINGS, PAIRS = "openings", "pairs"

MAX_BLOCKS = 8
"""Blocks of samples for each planned one, at most, however short documents are."""


def propose(run: Run) -> None:
    """Read texts: samples, openings and pairs, in this order."""
    settings = run.settings
    if settings.sampling is not None:
        _sample(run, settings.sampling)
    if settings.openings:
        for place, prompt in enumerate(run.prompts):
            number = share(settings.openings, place, len(run.prompts))
            work = partial(_opened, run.pair, prompt, number)
            _, seeds = run.read(f"{OPENINGS}/{place}", "searching", work)
            run.grow(f"{OPENINGS}/{place}/grown", seeds, number, beam=settings.opening_beam)
    if settings.searches_pairs(run.pair):
        work = partial(_best_pairs, run.pair, settings.pairs)
        _, seeds = run.read(f"{PAIRS}/all", "searching", work)
        run.grow(f"{PAIRS}/grown", seeds, settings.pairs)


def sources(settings: Settings) -> list[str]:
    """Names of the proposals that a search has."""
    searched = {SAMPLES: settings.sampling, OPENINGS: settings.openings, PAIRS: settings.pairs}
    return [name for name, used in searched.items() if used]


def _sample(run: Run, sampling: Sampling) -> None:
    """Blocks of samples after each prompt, then what grows from their alternatives."""
    seeds: list[Seed] = []
    for place, prompt in enumerate(run.prompts):
        seeds += _sampled(run, sampling, place, prompt)
    penalty = min(sampling.token_penalty, run.settings.token_penalty)
    settings = replace(run.settings, token_penalty=penalty)
    number = sampling.alternatives
    run.grow(f"{SAMPLES}/grown", best_seeds(seeds, number), number, settings=settings)


def _sampled(run: Run, sampling: Sampling, place: int, prompt: Prompt) -> list[Seed]:
    """Draw samples after one prompt: more if documents are short, until as much is read."""
    samples = share(sampling.samples, place, len(run.prompts))
    wanted, drawn, read = sampling.tokens_read * samples, 0, 0
    seeds: list[Seed] = []
    for block in range(MAX_BLOCKS * ceil(samples / sampling.block)):
        mean = max(1.0, read / drawn) if drawn else sampling.tokens_read
        rows = min(sampling.block, ceil((wanted - read) / mean))
        if rows <= 0:
            break
        key = f"{SAMPLES}/{place}/{block}"
        work = partial(draw, run.pair, prompt, sampling, rows, run.generator(key))
        texts, more = run.read(key, "sampling", work)
        seeds += more
        drawn += rows
        read += sum(_tokens_read(text, sampling, prompt) for text in texts)
    return seeds


def _tokens_read(text: Text, sampling: Sampling, prompt: Prompt) -> int:
    """Tokens read for a turn; those of the template between two turns count for the second."""
    own = min(sampling.tokens_read, len(text.tokens) - text.first)
    second = text.first != len(prompt.tokens)
    return own + len(prompt.reply.between) if prompt.reply and second else own


def _opened(pair: Pair, prompt: Prompt, number: int) -> Outcome:
    """The most promoted tokens after a prompt.

    Every single beginning of a document is surprising, however much promoted: surprise is ignored.
    """
    pair = pair.with_score(replace(pair.score, surprise=0.0))
    gains = pair.gains(pair.enter([prompt.tokens]))[0]
    gains[pair.excluded] = -torch.inf
    best = largest(gains, min(number, len(gains) - len(pair.excluded)), alike=ROUNDED)
    found = zip(best.tolist(), gains[best].tolist(), strict=True)
    return [], [Seed(prompt.tokens, token, gain) for token, gain in found]


def _best_pairs(pair: Pair, number: int) -> Outcome:
    """The most promoted pairs (context, token) of two different tokens, best first.

    A document's end can be context, but not a token; a token that marks its beginning is neither.
    """
    size, excluded = pair.vocab_size, torch.tensor(pair.excluded, device=pair.device)
    every = torch.arange(size, device=pair.device)
    usable = ~torch.isin(every, excluded)
    end, beginning = pair.vocabulary.eos_id, pair.vocabulary.bos_id
    contexts = every[usable | (every == end)] if beginning != end else every[usable]
    score = torch.empty(0, device=pair.device)
    cell, floor = torch.empty(0, dtype=torch.int64, device=pair.device), -torch.inf
    for rows in pair.slices(len(contexts)):
        context = contexts[rows]
        state = pair.enter(context[:, None])
        row, token, gain = pair.gains_above(state, score.new_full(context.shape, floor))
        kept = usable[token] & (context[row] != token)
        score = torch.cat([score, gain[kept]])
        cell = torch.cat([cell, context[row[kept]] * size + token[kept]])
        if len(score) > 2 * number:
            best = largest_by(score, cell, number, alike=ROUNDED)
            score, cell = score[best], cell[best]
            floor = float(score[-1])
    best = largest_by(score, cell, number, alike=ROUNDED)
    found = zip(cell[best].tolist(), score[best].tolist(), strict=True)
    return [], [Seed((one // size,), one % size, gain) for one, gain in found]
