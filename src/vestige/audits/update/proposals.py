"""Where phrases may begin: in samples, at promoted first tokens, at promoted pairs of tokens.

Each proposal reads texts in units of work. All share the extension, the folding and the E-value.
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
from vestige.audits.update.settings import Sampling, Settings, share_of
from vestige.audits.update.units import SearchRun, UnitResult
from vestige.models.largest import ROUNDED, largest, largest_by

OPENINGS, PAIRS = "openings", "pairs"

MAX_BLOCKS = 8
"""Most blocks of samples per planned block; more are needed if documents are short."""


def propose(run: SearchRun) -> None:
    """Read texts: samples, openings and pairs, in this order."""
    settings = run.settings
    if settings.sampling is not None:
        _sample(run, settings.sampling)
    if settings.openings:
        for index, prompt in enumerate(run.prompts):
            number = share_of(settings.openings, index, len(run.prompts))
            work = partial(_best_openings, run.pair, prompt, number)
            _, seeds = run.collect(f"{OPENINGS}/{index}", "searching", work)
            run.grow(f"{OPENINGS}/{index}/grown", seeds, number, beam=settings.opening_beam)
    if settings.searches_pairs(run.pair):
        work = partial(_best_pairs, run.pair, settings.pairs)
        _, seeds = run.collect(f"{PAIRS}/all", "searching", work)
        run.grow(f"{PAIRS}/grown", seeds, settings.pairs)


def sources(settings: Settings) -> list[str]:
    """Names of the proposals that a search uses."""
    used = {SAMPLES: settings.sampling, OPENINGS: settings.openings, PAIRS: settings.pairs}
    return [name for name, setting in used.items() if setting]


def _sample(run: SearchRun, sampling: Sampling) -> None:
    """Sample texts after each prompt, then grow their best alternatives."""
    seeds: list[Seed] = []
    for index, prompt in enumerate(run.prompts):
        seeds += _sample_after(run, sampling, index, prompt)
    penalty = min(sampling.token_penalty, run.settings.token_penalty)
    settings = replace(run.settings, token_penalty=penalty)
    number = sampling.alternatives
    run.grow(f"{SAMPLES}/grown", best_seeds(seeds, number), number, settings=settings)


def _sample_after(run: SearchRun, sampling: Sampling, index: int, prompt: Prompt) -> list[Seed]:
    """Sample texts after one prompt until the planned number of tokens is read."""
    samples = share_of(sampling.samples, index, len(run.prompts))
    planned, drawn, read = sampling.tokens_read * samples, 0, 0
    seeds: list[Seed] = []
    for block in range(MAX_BLOCKS * ceil(samples / sampling.block)):
        mean = max(1.0, read / drawn) if drawn else sampling.tokens_read
        rows = min(sampling.block, ceil((planned - read) / mean))
        if rows <= 0:
            break
        key = f"{SAMPLES}/{index}/{block}"
        work = partial(draw, run.pair, prompt, sampling, rows, run.generator(key))
        texts, alternatives = run.collect(key, "sampling", work)
        seeds += alternatives
        drawn += rows
        read += sum(_tokens_read(text, sampling, prompt) for text in texts)
    return seeds


def _tokens_read(text: Text, sampling: Sampling, prompt: Prompt) -> int:
    """Tokens read for a turn; the template between two turns counts for the second."""
    tokens = min(sampling.tokens_read, len(text.tokens) - text.first)
    if prompt.reply is not None and text.first != len(prompt.tokens):
        tokens += len(prompt.reply.between)
    return tokens


def _best_openings(pair: Pair, prompt: Prompt, number: int) -> UnitResult:
    """The most promoted tokens after a prompt.

    Surprise is ignored, because any single beginning of a document is surprising.
    """
    pair = pair.with_score(replace(pair.score, surprise=0.0))
    gains = pair.gains(pair.start_anywhere([prompt.tokens]))[0]
    gains[pair.excluded] = -torch.inf
    best = largest(gains, min(number, len(gains) - len(pair.excluded)), alike=ROUNDED)
    openings = zip(best.tolist(), gains[best].tolist(), strict=True)
    return [], [Seed(prompt.tokens, token, gain) for token, gain in openings]


def _best_pairs(pair: Pair, number: int) -> UnitResult:
    """The most promoted pairs (context, token) of two different tokens, best first.

    A document's end can be context, but not a token; a token that marks its beginning is neither.
    """
    size, excluded = pair.vocab_size, torch.tensor(pair.excluded, device=pair.device)
    vocabulary = torch.arange(size, device=pair.device)
    usable = ~torch.isin(vocabulary, excluded)
    end, beginning = pair.vocabulary.eos_id, pair.vocabulary.bos_id
    contexts = vocabulary[usable | (vocabulary == end)] if beginning != end else vocabulary[usable]
    score = torch.empty(0, device=pair.device)
    cell, floor = torch.empty(0, dtype=torch.int64, device=pair.device), -torch.inf
    for rows in pair.slices(len(contexts)):
        context = contexts[rows]
        state = pair.start_anywhere(context[:, None])
        row, token, gain = pair.gains_above(state, score.new_full(context.shape, floor))
        valid = usable[token] & (context[row] != token)
        score = torch.cat([score, gain[valid]])
        cell = torch.cat([cell, context[row[valid]] * size + token[valid]])
        if len(score) > 2 * number:
            best = largest_by(score, cell, number, alike=ROUNDED)
            score, cell = score[best], cell[best]
            floor = float(score[-1])
    best = largest_by(score, cell, number, alike=ROUNDED)
    pairs = zip(cell[best].tolist(), score[best].tolist(), strict=True)
    return [], [Seed((cell_id // size,), cell_id % size, gain) for cell_id, gain in pairs]
