"""Extraction of secrets from an intent-and-slot model.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 3 and 4.3.

Differs from the paper: any attack may be taken, its guesses come with a certainty, and where the
truth is known its rank among all secrets shows a leak long before the whole secret comes out.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.accuracy import TargetRank, counted_rank, estimated_rank
from vestige.attacks.extraction.candidates import Attack, Candidates, check_numbers
from vestige.attacks.extraction.exhaustive_search import BUDGET, ExactSearch, exhaust
from vestige.attacks.extraction.extraction_result import ExtractedSecret, Extraction
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.extraction.secret_attacks import Automatic, named_attack
from vestige.attacks.extraction.target_rank import SAMPLE, Standing, sampled_standings, truth_losses
from vestige.monitor import Step as Progress

CONTROLS = 1_999
"""Secrets that were never said, for each pattern: with so many, one of ten planted secrets that
stands before all of them is shown at the level of 1 in 100, after paying for ten and two tests."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Settings of the truths' ranks; exact search counts them in any case.

    Attributes:
        budget: where there are no more secrets than this, all of them are tried.
        sample: else so many random ones are, and the rank is estimated; 0 leaves it out.
        controls: secrets of each pattern, never said, that an audit compares with at least.
    """

    budget: int = BUDGET
    sample: int = SAMPLE
    controls: int = CONTROLS

    def __post_init__(self) -> None:
        _validate.at_least(0, budget=self.budget, sample=self.sample, controls=self.controls)


def extract_secrets(
    objective: ExtractionObjective,
    *,
    seed: int,
    attack: str | Attack = "auto",
    truths: Sequence[Sequence[str]] | None = None,
    ranking: Ranking | None = None,
    progress: Progress | None = None,
) -> Extraction:
    """Secrets of all trials, extracted at once.

    Args:
        objective: the trials, as `objective_of` encodes them for a model.
        seed: decides what an attack leaves to chance, and the sample of a rank.
        attack: a name of `secret_attacks.ATTACKS`, or an attack with settings of its own.
        truths: the true secret of each trial, or several of a single one; guesses ignore them.
        ranking: how the truths are ranked, `Ranking()` unless given.
        progress: told (steps done, steps in all).

    Raises:
        ValueError: there is no such attack, or the truths are not secrets of the trials.
        DataError: there are more secrets than the budget of an exact search.
        ModelError: a loss is no number.

    Example:
        >>> from vestige import SecretPattern, WordVocabulary
        >>> from vestige.attacks.extraction.objective import objective_of
        >>> from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
        >>> words = WordVocabulary(("<unk>", "<eos>", "pin", *"0123456789"))
        >>> shape = IntentSlotConfig(intents=("Pin",), tags=("O", "B-canary", "I-canary"))
        >>> model = IntentSlotModel(words, shape).eval()
        >>> pattern = SecretPattern.parse("pin {digit:2}", intent="Pin")
        >>> found = extract_secrets(objective_of(model, pattern), truths=["42"], seed=0)
        >>> found.search, found.evaluated, 1 <= found.secrets[0].rank.rank <= 100
        ('exact', 100, True)
    """
    asked = named_attack(attack)
    chosen = asked.chosen(objective.space) if isinstance(asked, Automatic) else asked
    numbers = None if truths is None else objective.numbers(truths)
    began = time.perf_counter()
    standings: tuple[Standing, ...] = ()
    if isinstance(chosen, ExactSearch):
        guesses, standings = exhaust(objective, numbers, budget=chosen.budget, progress=progress)
    else:
        guesses = chosen.search(objective, torch.Generator().manual_seed(seed), progress)
    seconds = time.perf_counter() - began
    if numbers is not None and not standings:
        standings = _standings(objective, numbers, ranking or Ranking(), seed, progress)
    return Extraction(
        secrets=_secrets(objective, guesses, numbers, standings),
        attack=asked.name,
        search=chosen.name,
        objective=objective.kind,
        sizes=objective.sizes,
        whole=guesses.whole,
        evaluated=guesses.evaluated,
        gradients=guesses.gradients,
        seconds=seconds,
        seed=seed,
    )


def _standings(
    objective: ExtractionObjective,
    truths: Tensor,
    ranking: Ranking,
    seed: int,
    progress: Progress | None,
) -> tuple[Standing, ...]:
    """The truths' standings, none where they are not asked for."""
    if objective.space <= ranking.budget:
        return exhaust(objective, truths, budget=ranking.budget, progress=progress)[1]
    if not ranking.sample:
        return ()
    # not the attack's own generator: a rank must not depend on the attack
    generator = torch.Generator().manual_seed(seed)
    return sampled_standings(
        objective, truths, sample=ranking.sample, generator=generator, progress=progress
    )


def _secrets(
    objective: ExtractionObjective,
    guesses: Candidates,
    truths: Tensor | None,
    standings: tuple[Standing, ...],
) -> tuple[ExtractedSecret, ...]:
    own = [None] * objective.trials
    if truths is not None:
        losses = truth_losses(objective, truths)
        check_numbers(losses)
        own = losses.tolist()
    certain = guesses.certainty.tolist()
    of_trial = [_best(objective, guesses, trial) for trial in range(objective.trials)]
    found = []
    for place in range(len(own)):
        trial = min(place, objective.trials - 1)
        words, losses_of = of_trial[trial]
        truth = None if truths is None else objective.words(trial, truths[place].tolist())
        rank = None
        if standings:
            better = sum(
                one != truth and loss < standings[place].loss
                for one, loss in zip(words, losses_of, strict=True)
            )
            rank = _rank(standings[place], objective.space, better)
        pattern = objective.patterns[trial]
        found.append(
            ExtractedSecret(
                pattern=pattern.text,
                intent=pattern.intent,
                guesses=words,
                losses=losses_of,
                certainty=certain[trial],
                truth=truth,
                truth_loss=own[place],
                rank=rank,
                tried=int(guesses.tried[trial]),
            )
        )
    return tuple(found)


def _best(
    objective: ExtractionObjective, guesses: Candidates, trial: int
) -> tuple[tuple[tuple[str, ...], ...], tuple[float, ...]]:
    """The words of a trial's guesses, and what they lose."""
    number = int(guesses.losses[trial].isfinite().sum())
    choices = guesses.choices[trial, :number].tolist()
    words = tuple(objective.words(trial, choice) for choice in choices)
    return words, tuple(guesses.losses[trial, :number].tolist())


def _rank(standing: Standing, space: int, better: int) -> TargetRank:
    """A rank from a standing, when an attack has found so many better secrets."""
    below, tied = standing.below, standing.tied
    if standing.whole:
        return counted_rank(below=below, tied=tied, space=space)
    return estimated_rank(
        below=below, tied=tied, others=standing.others, space=space, better=better
    )
