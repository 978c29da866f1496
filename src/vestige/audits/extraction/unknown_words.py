r"""Extraction of the unknown words of utterances from an intent-and-slot model.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 3 and 4.3: accuracy is the share of secrets whose every word is right, the Hamming distance
per token the share of words that are wrong, and guessing at random reaches

.. math:: \prod_i \frac{1}{|V_i|} \qquad \text{and} \qquad \frac{1}{n}\sum_i 1 - \frac{1}{|V_i|}

Differs from the paper: every secret is tried if there are few enough, guesses have a certainty,
everything has an interval, and if the truth is known its rank among all secrets is measured.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from statistics import fmean, median
from typing import Any

import torch

from vestige.audits.extraction.objective import ExtractionObjective
from vestige.audits.extraction.ranks import COLUMNS, Known, Truths
from vestige.audits.extraction.searches import (
    BUDGET,
    Candidates,
    Progress,
    Search,
    coordinate_descent,
    every_loss,
    exhaust,
)
from vestige.metrics.estimates import Estimate, bounded_mean, columns, rate
from vestige.metrics.tests import rank_sum
from vestige.results import Measurement

Row = Mapping[str, Any]

SAMPLE = 20_000
"""Random secrets that a rank is estimated from if there are too many to try."""

_OF_TRUTHS = ("truth", "truth_loss", "right", "hamming", *COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Extraction(Measurement):
    """Secrets that were extracted from trials of one shape.

    Attributes:
        secrets: a row per trial, or per truth of a single one. pattern has an underscore for each
            unknown word; guesses with their losses in nats, best first; certainty, the best one's
            share of the summed exp(-loss) of those that were tried; truth with its loss and rank
            (`ranks.COLUMNS`), right and hamming (share of wrong words) of the best guess. None
            where the truth is unknown.
        search: "exact", "coordinate", or the name of another one.
        sizes: candidates of each unknown word.
        whole: every secret was tried.
        evaluated: losses of secrets computed for each trial; gradients: of an utterance's loss.
        seconds: of the search for all trials together, without ranks.
        seed: of what was random.
    """

    secrets: tuple[Row, ...]
    search: str
    sizes: tuple[int, ...]
    whole: bool
    evaluated: int
    gradients: int
    seconds: float
    seed: int

    def summary(self) -> dict[str, object]:
        """One row of a results table; None for what needs truths if there are none."""
        known = [row for row in self.secrets if row["truth"] is not None]
        ranked = [row for row in self.secrets if row["rank"] is not None]
        right, space = rate(row["right"] for row in known), prod(self.sizes)
        ranks, bits = ([row[name] for row in ranked] for name in ("rank", "exposure"))
        return {
            "search": self.search,
            "trials": len(self.secrets),
            "length": len(self.sizes),
            "space_bits": sum(map(log2, self.sizes)),
            "right": right and right.count,
            **columns("accuracy", right),
            "accuracy_by_chance": 1 / space,
            **columns("hamming", bounded_mean([row["hamming"] for row in known])),
            "hamming_by_chance": hamming_by_chance(self.sizes),
            "ranked": len(ranked),
            "ranks_exact": all(r["rank_known"] == "exact" for r in ranked) if ranked else None,
            "ranks_bounded": sum(row["rank_known"] == "bounded" for row in ranked),
            "median_rank": median(ranks) if ranked else None,
            "median_rank_known": median_known(ranked),
            **columns("exposure", mean_exposure(ranked, bits, ceiling=log2(space))),
            "chance_probability": rank_sum(ranks, [space] * len(ranks)) if ranked else None,
            "certainty": fmean(row["certainty"] for row in self.secrets),
            "certainty_among": "all" if self.whole else "tried",
            "seconds": self.seconds,
            "seconds_per_trial": self.seconds / len(self.secrets),
            "losses_per_trial": self.evaluated,
            "gradients_per_trial": self.gradients,
            "seed": self.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a trial."""
        for number, row in enumerate(self.secrets, 1):
            yield {"trial": number, **row}


def extract_secrets(
    objective: ExtractionObjective,
    *,
    seed: int,
    search: Search | None = None,
    truths: Sequence[Sequence[str]] | None = None,
    budget: int = BUDGET,
    sample: int = SAMPLE,
    progress: Progress | None = None,
) -> Extraction:
    """Secrets of all trials, extracted at once.

    Args:
        objective: the trials, as `objective_of` encodes them for a model.
        seed: of what a search leaves to chance, and of the sample of a rank.
        search: another search than ours, which tries every secret within the budget and follows
            coordinate descent beyond.
        truths: the true secret of each trial, or several of a single one; guesses ignore them.
        budget: every secret is tried, and ranks are counted, if there are at most this many.
        sample: otherwise ranks are estimated from this many random secrets; 0: no rank.
        progress: called with (steps done, steps in all).

    Raises:
        ValueError: the truths are not secrets of the trials.
        ModelError: a loss is not finite.
    """
    within = objective.space <= budget
    true = None if truths is None else Truths(objective, truths)
    began = time.perf_counter()
    every, name = None, "exact" if within else "coordinate"
    if search is None and within:
        every = every_loss(objective, progress)
        found = exhaust(objective, every)
    else:
        name = name if search is None else search.__name__
        chosen = search or coordinate_descent
        found = chosen(objective, torch.Generator().manual_seed(seed), progress)
    seconds = time.perf_counter() - began
    if true is not None and within:
        if every is None:
            every = every_loss(objective, progress)
        codes = torch.arange(objective.space, device=objective.device)
        true.compare(codes.expand_as(every), every, whole=True)
    elif true is not None and sample:
        true.sample(sample, seed=seed, progress=progress)
    return Extraction(
        secrets=tuple(_rows(objective, found, true)),
        search=name,
        sizes=objective.sizes,
        whole=int(found.tried.min()) == objective.space,
        evaluated=found.evaluated,
        gradients=found.gradients,
        seconds=seconds,
        seed=seed,
    )


def _rows(
    objective: ExtractionObjective, found: Candidates, true: Truths | None
) -> Iterator[dict[str, Any]]:
    """The rows of an `Extraction`."""
    guessed = [_guesses(objective, found, trial) for trial in range(objective.trials)]
    if true is None:
        yield from ({**row, **dict.fromkeys(_OF_TRUTHS)} for row in guessed)
        return
    for place, (loss, numbers) in enumerate(zip(true.losses, true.numbers.tolist(), strict=True)):
        trial = min(place, objective.trials - 1)
        row, words = guessed[trial], objective.words(trial, numbers)
        truth = " ".join(words)
        guesses = zip(row["guesses"], row["losses"], strict=True)
        rank = true.rank(place, better=sum(g != truth and own < loss for g, own in guesses))
        yield {
            **row,
            "truth": truth,
            "truth_loss": loss,
            "right": row["guess"] == truth,
            "hamming": hamming_per_token(row["guess"].split(), words),
            **(rank or dict.fromkeys(COLUMNS)),
        }


def _guesses(objective: ExtractionObjective, found: Candidates, trial: int) -> dict[str, Any]:
    """The columns that all truths of a trial share."""
    number = int(found.losses[trial].isfinite().sum())
    losses = found.losses[trial, :number].tolist()
    choices = found.choices[trial, :number].tolist()
    guesses = [" ".join(objective.words(trial, choice)) for choice in choices]
    return {
        "pattern": objective.patterns[trial].text,
        "intent": objective.patterns[trial].intent,
        "guess": guesses[0],
        "loss": losses[0],
        "certainty": float(found.certainty[trial]),
        "guesses": guesses,
        "losses": losses,
        "tried": int(found.tried[trial]),
    }


def hamming_per_token(guess: Sequence[str], truth: Sequence[str]) -> float:
    """The share of words that are wrong, in [0, 1]."""
    return sum(a != b for a, b in zip(guess, truth, strict=True)) / len(truth)


def hamming_by_chance(sizes: Sequence[int]) -> float:
    """The same of random guesses on average; `sizes` are candidates of each unknown word."""
    return sum(1 - 1 / size for size in sizes) / len(sizes)


def mean_exposure(
    ranked: Sequence[Row], bits: Sequence[float], *, ceiling: float
) -> Estimate | None:
    """The mean exposure; a single rank has its own interval.

    Args:
        ranked: rows with a rank.
        bits: a value per secret, which may be ranked in several models.
        ceiling: highest possible exposure.
    """
    if len(bits) == 1 == len(ranked):
        [row] = ranked
        ends = row["exposure_low"], row["exposure_high"]
        return Estimate("exposure", row["exposure"], *ends, n=1)
    return bounded_mean(bits, ceiling=ceiling)


def median_known(ranked: Sequence[Row]) -> Known | None:
    """Accuracy of a median rank: "bounded" if it may be lower; None without ranks.

    A bounded rank counts with its upper end, so that the median is an upper end as well, unless
    all bounded ones rank before it whatever they are.
    """
    if not ranked:
        return None
    ordered = sorted(ranked, key=lambda row: row["rank"])
    first = ordered[(len(ordered) - 1) // 2]
    if any(row["rank_known"] == "bounded" and row["rank"] >= first["rank"] for row in ordered):
        return "bounded"
    middle = {first["rank_known"], ordered[len(ordered) // 2]["rank_known"]}
    return "sampled" if "sampled" in middle else "exact"
