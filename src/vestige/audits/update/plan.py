"""Cost of a search before it begins: units of work, tokens and minutes."""

import time
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import torch

from vestige.audits.update.pair import BLOCK, Pair
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.samples import NO_TOKEN, next_tokens
from vestige.audits.update.settings import Sampling, Settings, share_of

# Measured averages of searches:
GROWN_TOKENS = 12  # tokens that a seed grows by
FRESH_ALTERNATIVES, FRESH_PAIRS = 0.25, 0.4  # share of seeds that no phrase has explored
REPAIR_STEPS, REPAIRED_BEFORE = 32, 0.1  # tokens per repair; share that the earlier model reads

LONG = 900  # seconds above which the plan mentions `--minutes`
FEW_ROWS, MANY_ROWS = 16, 64  # rows of a timed step; the larger number for fast models
TIMED_SECONDS = 0.1  # least time spent on each timed step, unless a few steps take longer
MARGIN = 0.7  # of the minutes; predictions are right within a factor of two
SIZES = [2 ** (step / 2) for step in range(12, -7, -1)]  # 64 times the usual one to an eighth


class Steps(NamedTuple):
    """Decoding steps of one kind."""

    rows: float  # mean number that the later model reads in one batch
    steps: float
    before: float = 1.0  # share of the rows that the earlier model reads too
    units: int = 0  # units of the search that end with these steps

    @property
    def tokens(self) -> float:
        """Read by both models."""
        return self.rows * self.steps * (1 + self.before)


def steps_of(settings: Settings, pair: Pair, prompts: Sequence[Prompt]) -> Iterator[Steps]:
    """The steps of a search if no document ends early; a prompt is read in one step."""
    sampling = settings.sampling
    for index, prompt in enumerate(prompts):
        if sampling is not None:
            samples = share_of(sampling.samples, index, len(prompts))
            blocks = ceil(samples / sampling.block)
            yield Steps(len(prompt.tokens), blocks)
            yield Steps(samples / blocks, blocks * sampling.tokens_read, units=blocks)
        if settings.openings:
            openings = share_of(settings.openings, index, len(prompts))
            yield Steps(len(prompt.tokens), 1 + ceil(openings / BLOCK), units=1)
            yield from _growing(openings, openings, 0, beam=settings.opening_beam)
    if sampling is not None:
        seeds = sampling.alternatives
        yield from _growing(seeds, FRESH_ALTERNATIVES * seeds, sampling.context)
    if settings.searches_pairs(pair):
        yield Steps(pair.vocab_size, 1, units=1)
        fresh = FRESH_PAIRS * min(settings.pairs, pair.vocab_size**2)
        yield from _growing(settings.pairs, fresh, 1)
    if settings.repaired:
        yield Steps(settings.repaired, REPAIR_STEPS, before=REPAIRED_BEFORE, units=1)


def _growing(planned: int, seeds: float, context: int, *, beam: int = 1) -> Iterator[Steps]:
    if blocks := ceil(seeds / BLOCK):
        yield Steps(seeds / blocks, blocks * context)
        yield Steps(beam * seeds / blocks, blocks * GROWN_TOKENS, units=ceil(planned / BLOCK))


def units_of(settings: Settings, pair: Pair, prompts: Sequence[Prompt]) -> int:
    """Units of a search, if no document ends early."""
    return sum(steps.units for steps in steps_of(settings, pair, prompts))


def tokens_of(settings: Settings, pair: Pair, prompts: Sequence[Prompt]) -> int:
    """Tokens that both models together will read."""
    return round(sum(steps.tokens for steps in steps_of(settings, pair, prompts)))


def seconds_of(
    settings: Settings, pair: Pair, prompts: Sequence[Prompt], step_seconds: tuple[float, float]
) -> float:
    """Time of a search. A step's time is linear in its rows: see `timed`."""
    first_row, further_row = step_seconds
    return sum(
        step.steps * (first_row + further_row * (max(1.0, step.rows) - 1)) * (1 + step.before) / 2
        for step in steps_of(settings, pair, prompts)
    )


def size_for(
    seconds: float,
    settings: Settings,
    pair: Pair,
    prompts: Sequence[Prompt],
    step_seconds: tuple[float, float],
) -> float:
    """The largest size that fits into the time; the smallest one if none does."""
    for size in SIZES:
        if seconds_of(settings.scaled(size), pair, prompts, step_seconds) <= MARGIN * seconds:
            return size
    return SIZES[-1]


@torch.no_grad()
def timed(pair: Pair) -> tuple[float, float]:
    """Seconds of a step with one row, and of each further row."""
    pair = Pair.of(pair.before.model, pair.after.model, pair.score)  # does not count these tokens
    one_row, rows = _time(pair, 1), FEW_ROWS
    many_rows = _time(pair, rows)
    if many_rows < TIMED_SECONDS:
        rows = MANY_ROWS
        many_rows = _time(pair, rows)
    return one_row, max(0.0, many_rows - one_row) / (rows - 1)


def _time(pair: Pair, rows: int) -> float:
    """The shortest of a few steps after 16 tokens, or half of the models' longest text."""
    device = pair.device
    length = 16 if pair.longest is None else max(1, min(16, pair.longest // 2))
    prefix = pair.start_anywhere(torch.zeros(1, length, dtype=torch.int64, device=device)).read()
    token = torch.zeros(rows, dtype=torch.int64, device=device)
    half = torch.full((rows,), 0.5, dtype=torch.float64, device=device)
    seconds: list[float] = []
    while not seconds or (len(seconds) < 4 and sum(seconds) < TIMED_SECONDS):
        started = _now(device)
        state = prefix[token].with_next(token).read()
        for part in pair.slices(rows):
            next_tokens(pair, state[part], half[part], token[part] + NO_TOKEN, Sampling())
        seconds.append(_now(device) - started)
    return min(seconds)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def plan_lines(
    tokens: int, seconds: float, *, searches: int, finished: int, minutes: float | None
) -> list[str]:
    """The plan for the user.

    Args:
        tokens, seconds: of one search.
        searches: of the update and of its null models.
        finished: searches that were finished earlier.
        minutes: time limit of all searches.
    """
    total = (searches - finished) * seconds
    planned = f"{searches} searches (the update and {searches - 1} null)"
    earlier = f", {finished} finished earlier" if finished else ""
    each = f" ({duration(seconds)} each)" if searches - finished > 1 else ""
    plan = (
        f"Plan: {planned if searches > 1 else '1 search'}{earlier}, {tokens:,} tokens each; "
        f"about {duration(total)}{each}."
    )
    if minutes is None and total > LONG:
        return [plan, "To limit the time, pass --minutes 10. An interrupted run resumes."]
    if minutes is not None and total > 60 * minutes:
        too_long = f"Even the smallest search takes longer than {minutes:g} min."
        return [plan, f"{too_long} It stops then; rerun to resume."]
    return [plan]


def duration(seconds: float) -> str:
    """A duration in words: "40 s", "3 min", "2 h 05 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
