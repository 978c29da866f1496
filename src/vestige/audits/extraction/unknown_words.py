r"""Extraction of the unknown words of utterances from an intent-and-slot model.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 3 and 4.3: accuracy is the share of secrets whose every word is right, the Hamming distance
per token the share of words that are wrong, and guessing at random reaches

.. math:: \prod_i \frac{1}{|V_i|} \qquad \text{and} \qquad \frac{1}{n}\sum_i 1 - \frac{1}{|V_i|}

Differs from the paper: all secrets are tried if there are few enough, guesses have a certainty,
rates and means have intervals, and if the truth is known its rank among all secrets is measured.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from statistics import fmean, median
from typing import Any

import torch

from vestige.audits.extraction.objective import ExtractionObjective
from vestige.audits.extraction.ranks import COLUMNS, RankKind, Truths
from vestige.audits.extraction.searches import (
    BUDGET,
    Candidates,
    Progress,
    Search,
    all_losses,
    best_of_all,
    coordinate_descent,
)
from vestige.metrics.estimates import Estimate, bounded_mean, columns, rate
from vestige.metrics.tests import rank_sum
from vestige.results import Measurement

Row = Mapping[str, Any]

RANK_SAMPLE = 20_000
"""Random secrets that a rank is estimated from if there are too many to try."""

_TRUTH_COLUMNS = ("truth", "truth_loss", "right", "hamming", *COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Extraction(Measurement):
    """Extracted secrets of trials that were scored together.

    Attributes:
        secrets: a row per trial, or per truth of a single one. pattern has an underscore for each
            unknown word; guesses with their losses in nats, best first; certainty, the best one's
            share of the summed exp(-loss) of those that were tried; truth with its loss and rank
            (`ranks.COLUMNS`), right and hamming (share of wrong words) of the best guess. None
            where the truth is unknown.
        search: "exact", "coordinate", or the name of another one.
        sizes: number of candidates of each unknown word.
        exhaustive: whether all secrets were tried.
        evaluated: losses of secrets computed for each trial.
        gradients: gradients of an utterance's loss computed for each trial.
        seconds: of the search for all trials together, without ranks.
        seed: of the search and of the sample of a rank.
    """

    secrets: tuple[Row, ...]
    search: str
    sizes: tuple[int, ...]
    exhaustive: bool
    evaluated: int
    gradients: int
    seconds: float
    seed: int

    def summary(self) -> dict[str, object]:
        """One row of a results table; without truths, entries about truths are None."""
        with_truth = [row for row in self.secrets if row["truth"] is not None]
        ranked = [row for row in self.secrets if row["rank"] is not None]
        right, space = rate(row["right"] for row in with_truth), prod(self.sizes)
        ranks, exposures = ([row[name] for row in ranked] for name in ("rank", "exposure"))
        return {
            "search": self.search,
            "trials": len(self.secrets),
            "length": len(self.sizes),
            "space_bits": sum(map(log2, self.sizes)),
            "right": right and right.count,
            **columns("accuracy", right),
            "accuracy_by_chance": 1 / space,
            **columns("hamming", bounded_mean([row["hamming"] for row in with_truth])),
            "hamming_by_chance": hamming_by_chance(self.sizes),
            "ranked": len(ranked),
            "ranks_exact": (
                all(row["rank_known"] == "exact" for row in ranked) if ranked else None
            ),
            "ranks_bounded": sum(row["rank_known"] == "bounded" for row in ranked),
            "median_rank": median(ranks) if ranked else None,
            "median_rank_known": median_rank_kind(ranked),
            **columns("exposure", mean_exposure(ranked, exposures, ceiling=log2(space))),
            "chance_probability": rank_sum(ranks, [space] * len(ranks)) if ranked else None,
            "certainty": fmean(row["certainty"] for row in self.secrets),
            "certainty_among": "all" if self.exhaustive else "tried",
            "seconds": self.seconds,
            "seconds_per_trial": self.seconds / len(self.secrets),
            "losses_per_trial": self.evaluated,
            "gradients_per_trial": self.gradients,
            "seed": self.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row per trial or truth."""
        for number, row in enumerate(self.secrets, 1):
            yield {"trial": number, **row}


def extract_secrets(
    objective: ExtractionObjective,
    *,
    seed: int,
    search: Search | None = None,
    truths: Sequence[Sequence[str]] | None = None,
    budget: int = BUDGET,
    sample: int = RANK_SAMPLE,
    progress: Progress | None = None,
) -> Extraction:
    """Search for the secrets of all trials at once.

    Args:
        objective: the trials, encoded by `objective_of`.
        seed: of the search and of the sample of a rank.
        search: None tries all secrets within the budget, and uses coordinate descent above it.
        truths: the true secret of each trial, or several of a single one; the search ignores them.
        budget: ranks are counted if there are at most this many secrets.
        sample: otherwise ranks are estimated from this many random secrets; 0: no rank.
        progress: called with (steps done, steps in all).

    Raises:
        ValueError: the truths are not secrets of the trials.
        ModelError: a loss is not finite.
    """
    within_budget = objective.space <= budget
    ranked = None if truths is None else Truths(objective, truths)
    began = time.perf_counter()
    losses = None
    if search is None and within_budget:
        name = "exact"
        losses = all_losses(objective, progress)
        candidates = best_of_all(objective, losses)
    else:
        name = "coordinate" if search is None else search.__name__
        generator = torch.Generator().manual_seed(seed)
        candidates = (search or coordinate_descent)(objective, generator, progress)
    seconds = time.perf_counter() - began
    if ranked is not None and within_budget:
        if losses is None:
            losses = all_losses(objective, progress)
        codes = torch.arange(objective.space, device=objective.device)
        ranked.compare(codes.expand_as(losses), losses, exact=True)
    elif ranked is not None and sample:
        ranked.sample(sample, seed=seed, progress=progress)
    return Extraction(
        secrets=tuple(_rows(objective, candidates, ranked)),
        search=name,
        sizes=objective.sizes,
        exhaustive=int(candidates.tried.min()) == objective.space,
        evaluated=candidates.evaluated,
        gradients=candidates.gradients,
        seconds=seconds,
        seed=seed,
    )


def _rows(
    objective: ExtractionObjective, candidates: Candidates, truths: Truths | None
) -> Iterator[dict[str, Any]]:
    """The rows of an `Extraction`."""
    trials = [_guess_columns(objective, candidates, trial) for trial in range(objective.trials)]
    if truths is None:
        yield from ({**row, **dict.fromkeys(_TRUTH_COLUMNS)} for row in trials)
        return
    for number, (loss, indices) in enumerate(
        zip(truths.losses, truths.indices.tolist(), strict=True)
    ):
        trial = min(number, objective.trials - 1)
        row, words = trials[trial], objective.words(trial, indices)
        truth = " ".join(words)
        guesses = zip(row["guesses"], row["losses"], strict=True)
        better = sum(guess != truth and guess_loss < loss for guess, guess_loss in guesses)
        rank = truths.rank(number, better=better)
        yield {
            **row,
            "truth": truth,
            "truth_loss": loss,
            "right": row["guess"] == truth,
            "hamming": hamming_per_token(row["guess"].split(), words),
            **(rank or dict.fromkeys(COLUMNS)),
        }


def _guess_columns(
    objective: ExtractionObjective, candidates: Candidates, trial: int
) -> dict[str, Any]:
    """The columns that all truths of a trial share."""
    number = int(candidates.losses[trial].isfinite().sum())
    losses = candidates.losses[trial, :number].tolist()
    choices = candidates.choices[trial, :number].tolist()
    guesses = [" ".join(objective.words(trial, choice)) for choice in choices]
    return {
        "pattern": objective.patterns[trial].text,
        "intent": objective.patterns[trial].intent,
        "guess": guesses[0],
        "loss": losses[0],
        "certainty": float(candidates.certainty[trial]),
        "guesses": guesses,
        "losses": losses,
        "tried": int(candidates.tried[trial]),
    }


def hamming_per_token(guess: Sequence[str], truth: Sequence[str]) -> float:
    """The share of words that are wrong, in [0, 1]."""
    return sum(a != b for a, b in zip(guess, truth, strict=True)) / len(truth)


def hamming_by_chance(sizes: Sequence[int]) -> float:
    """The mean share of wrong words of random guesses, by the numbers of candidates."""
    return sum(1 - 1 / size for size in sizes) / len(sizes)


def mean_exposure(
    ranked: Sequence[Row], exposures: Sequence[float], *, ceiling: float
) -> Estimate | None:
    """The mean exposure; a single rank has its own interval.

    Args:
        ranked: rows with a rank.
        exposures: one per secret, which may be ranked in several models.
        ceiling: highest possible exposure.
    """
    if len(exposures) == 1 == len(ranked):
        [row] = ranked
        ends = row["exposure_low"], row["exposure_high"]
        return Estimate("exposure", row["exposure"], *ends, n=1)
    return bounded_mean(exposures, ceiling=ceiling)


def median_rank_kind(ranked: Sequence[Row]) -> RankKind | None:
    """How the median rank is known: "bounded" if it may be lower; None without ranks.

    A bounded rank counts with its upper end. Then the median is an upper end as well, unless the
    upper ends of all bounded ranks are below it.
    """
    if not ranked:
        return None
    ordered = sorted(ranked, key=lambda row: row["rank"])
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if any(row["rank_known"] == "bounded" and row["rank"] >= lower["rank"] for row in ordered):
        return "bounded"
    return "sampled" if "sampled" in (lower["rank_known"], upper["rank_known"]) else "exact"
