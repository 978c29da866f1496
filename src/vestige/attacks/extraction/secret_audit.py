"""Audit of planted secrets against controls that were never planted.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 4.2 and 4.3.

Differs from the paper: beside the planted secrets stand controls, drawn by the same rule and never
said: the manifest's, and others that are drawn when the model is asked, since they cost a loss
each. To a model that never saw them all of them are alike, whatever words it prefers, so that each
choice of as many secrets from all of them stands as high as the planted ones with the same chance.
`permutation_test` counts these choices.

A drawn control that was said in the training text all the same stands high, and makes it harder to
show a leak, never easier. What is drawn is the secret: asked in several models, it is one secret,
whose places are added up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log2
from statistics import fmean, stdev

import numpy as np
from scipy.stats import rankdata

from vestige import _validate, claims
from vestige.attacks.extraction.accuracy import baseline_accuracy, baseline_hamming
from vestige.attacks.extraction.candidates import Attack
from vestige.attacks.extraction.extraction_result import (
    Extraction,
)
from vestige.attacks.extraction.nlu_extraction import Ranking, extract_secrets
from vestige.attacks.extraction.objective import ObjectiveKind, objective_of
from vestige.attacks.extraction.secret_measures import (
    AuditedGroup,
    bits_of,
    by_secret,
    measures,
    together,
)
from vestige.claims.effects import EXPOSURE_BITS
from vestige.data.secret_canaries import SecretCanary, draw_secrets
from vestige.metrics.estimates import columns, difference_of_means
from vestige.metrics.permutation import RankTest, permutation_test
from vestige.models.white_box import WhiteBox
from vestige.monitor import Step as Progress
from vestige.results import Measurement

LEVEL = 0.01
"""Level of the test."""

_PARTS = 1000

UNCHECKED = claims.Check("alive", "could not run", "No labelled utterances were given.")
"""Where nobody tested whether the model labels utterances at all."""


@dataclass(frozen=True, kw_only=True)
class SecretAudit(Measurement):
    """Extraction of the planted secrets and controls of a manifest.

    Attributes:
        groups: model by model, pattern by pattern, fewest copies first, the controls last.
        patterns: how many patterns there are.
        models: how many models were asked.
        alive: the check of each model on labelled utterances.
    """

    groups: tuple[AuditedGroup, ...]
    patterns: int
    models: int = 1
    alive: tuple[claims.Check, ...] = (UNCHECKED,)

    @property
    def planted(self) -> Extraction:
        """All planted secrets together; sizes and settings are those of the first pattern."""
        return together([group for group in self.groups if group.copies])

    @property
    def controls(self) -> Extraction | None:
        """The manifest's controls together; None without."""
        groups = [group for group in self.groups if not (group.copies or group.drawn)]
        return together(groups) if groups else None

    @property
    def drawn(self) -> Extraction | None:
        """The controls that were drawn when the model was asked; None without."""
        groups = [group for group in self.groups if group.drawn]
        return together(groups) if groups else None

    @cached_property
    def test(self) -> RankTest | None:
        """Permutation test of the planted secrets against controls; None without controls, or
        where a loss is not finite.
        """
        if not np.isfinite(_losses(self.groups)).all():
            return None
        return _compared(
            [group for group in self.groups if group.copies],
            [group for group in self.groups if not group.copies],
        )

    @cached_property
    def strays(self) -> RankTest | None:
        """The same of the manifest's controls among those drawn later; None without both."""
        never = [group for group in self.groups if not group.copies]
        if not np.isfinite(_losses(never)).all():
            return None
        return _compared(
            [group for group in never if not group.drawn],
            [group for group in never if group.drawn],
        )

    @cached_property
    def claim(self) -> claims.Claim:
        """The verdict on the places of planted secrets among the controls, at `LEVEL`."""
        found = self.test
        test = None
        if found is not None:
            never = "unplanted secrets of the same patterns"
            test = claims.Test(found.p, found.least, LEVEL, never)
        checks = (*self.alive, self._independent(), self._powerful(test))
        return claims.Claim("extract utterances", test, checks, self._difference())

    @property
    def verdict(self) -> claims.Verdict:
        """As the claim's."""
        return self.claim.verdict

    def _independent(self) -> claims.Check:
        """Models that are copies of another add nothing; each secret counts once."""
        losses = {
            str(model): str(np.round(_losses([g for g in self.groups if g.model == model]), 6))
            for model in range(1, self.models + 1)
        }
        copies = self.models - len(set(losses.values()))
        if copies:
            return claims.Check(
                "independent", "failed",
                f"{copies} of {self.models} models are copies of another.", (claims.NO_LEAK,),
            )  # fmt: skip
        number = len(self.planted.secrets) // self.models
        what = "1 planted secret counts" if number == 1 else f"{number} planted secrets count"
        return claims.Check("independent", "passed", f"{what} once each, in any number of models.")

    def _powerful(self, test: claims.Test | None) -> claims.Check:
        """The difference of exposure that as many secrets, spread like controls, would show."""
        planted, never = self._exposures()
        spread = stdev(never) if len(never) > 1 else inf
        return claims.powerful(
            test,
            detectable=claims.detectable_shift(spread, len(planted), len(never), alpha=LEVEL),
            wanted=EXPOSURE_BITS,
            effect="an exposure of {} bits above controls",
        )

    def summary(self) -> dict[str, object]:
        """One row of a results table; what no rank was asked for is None."""
        first, test, strays = self.groups[0].found, self.test, self.strays
        groups = [group for group in self.groups if group.copies]
        return {
            **self.claim.summary(),
            "p_value": test and test.p,
            "p_of_all": test and test.of_sum,
            "p_of_first": test and test.of_first,
            "p_least": test and test.least,
            "level": LEVEL,
            "attack": first.attack,
            "search": " ".join(sorted({group.found.search for group in self.groups})),
            "objective": first.objective,
            "patterns": self.patterns,
            "models": self.models,
            **measures("planted", groups),
            "accuracy_by_chance": fmean(baseline_accuracy(g.found.sizes) for g in groups),
            "hamming_by_chance": fmean(baseline_hamming(g.found.sizes) for g in groups),
            **measures("controls", [g for g in self.groups if not (g.copies or g.drawn)]),
            "controls_p_value": strays and strays.p,
            **measures("drawn", [g for g in self.groups if g.drawn], ranks_only=True),
            **columns("exposure_difference", self._difference()),
            "certainty_among": "all" if all(g.found.whole for g in self.groups) else "tried",
            "seed": first.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret; `pandas.DataFrame(result.rows())` is the frame.

        A planted one says how many controls of its pattern lose no more than it in its model, of
        how many. Of controls that were drawn there are losses and ranks, no guesses.
        """
        number = 0
        for group in self.groups:
            others = self._control_losses(group)
            for secret in group.found.secrets:
                number += 1
                own = secret.truth_loss
                before = None if own is None or not group.copies else int((others <= own).sum())
                row = secret.row()
                if group.drawn:
                    row |= dict.fromkeys(_OF_GUESSES)
                yield {
                    "number": number,
                    "model": group.model,
                    "copies": group.copies,
                    "drawn": group.drawn,
                    "space_bits": sum(log2(size) for size in group.found.sizes),
                    "hamming_by_chance": baseline_hamming(group.found.sizes),
                    "search": group.found.search,
                    "controls_before": before,
                    "controls_asked": None if before is None else len(others),
                    **row,
                }

    def _control_losses(self, group: AuditedGroup) -> np.ndarray:
        return _losses(
            [
                other
                for other in self.groups
                if not other.copies and (other.pattern, other.model) == (group.pattern, group.model)
            ]
        )

    def _difference(self) -> claims.Estimate | None:
        """Mean exposure of planted secrets above that of controls; the unit is the secret."""
        planted, never = self._exposures()
        if not (planted and never):
            return None
        found = difference_of_means(planted, never)
        return replace(found, name="exposure above controls", unit="bits")

    def _exposures(self) -> tuple[list[float], list[float]]:
        """Exposures of planted secrets and of controls, each a mean over the models."""
        planted, never = (
            [group for group in self.groups if bool(group.copies) == side] for side in (True, False)
        )
        return by_secret(planted, bits_of), by_secret(never, bits_of)


def audit_secrets(
    model: WhiteBox | Sequence[WhiteBox],
    canaries: Sequence[SecretCanary],
    *,
    seed: int,
    attack: str | Attack = "auto",
    objective: ObjectiveKind = "joint",
    references: Sequence[WhiteBox] = (),
    ranking: Ranking | None = None,
    progress: Progress | None = None,
) -> SecretAudit:
    """Ask a model for every pattern of a manifest, and look where the true secrets stand.

    Args:
        model: who is asked; or several, all trained on what the canaries were planted in.
        canaries: planted ones, and controls.
        seed: decides what an attack leaves to chance, the sample of a rank, and the controls that
            are drawn beside the manifest's.
        attack: see `extract_secrets`; it asks each pattern once, whatever its secrets.
        objective: see `objective_of`.
        references: models that never saw the secrets, for "calibrated".
        ranking: how the truths are ranked, and among how many controls.
        progress: told (thousandths of patterns done, thousandths in all).

    Raises:
        ValueError: no canary was planted, or a setting is wrong; see `objective_of`.
        DataError: the model cannot read a canary or lacks its labels; see `objective_of`.
    """
    _validate.at_least(1, planted=sum(canary.planted for canary in canaries))
    ranking = ranking or Ranking()
    models = [model] if isinstance(model, WhiteBox) else list(model)
    _validate.at_least(1, models=len(models))
    patterns = list(dict.fromkeys(canary.parsed for canary in canaries))
    asked = [(one, pattern) for one in range(len(models)) for pattern in range(len(patterns))]
    groups: list[AuditedGroup] = []
    for place, (one, number) in enumerate(asked):

        def part(done: int, total: int, place: int = place) -> None:
            if progress:
                progress(place * _PARTS + done * _PARTS // total, len(asked) * _PARTS)

        pattern = patterns[number]
        own = [canary for canary in canaries if canary.parsed == pattern]
        drawn = _drawn(own, ranking.controls, seed)
        found = extract_secrets(
            objective_of(models[one], pattern, kind=objective, references=references),
            truths=[*(canary.secret for canary in own), *drawn],
            seed=seed,
            attack=attack,
            ranking=ranking,
            progress=part,
        )
        for group in _groups(own, found):
            groups.append(replace(group, pattern=number + 1, model=one + 1))
    return SecretAudit(groups=tuple(groups), patterns=len(patterns), models=len(models))


_OF_GUESSES = ("guess", "guesses", "loss", "losses", "certainty", "right", "hamming")


def _drawn(canaries: Sequence[SecretCanary], wanted: int, seed: int) -> Sequence[tuple[str, ...]]:
    """Controls to stand beside those of one pattern's manifest, as many as there can be."""
    pattern = canaries[0].parsed
    missing = wanted - sum(canary.control for canary in canaries)
    number = min(missing, pattern.space - len(canaries))
    if number <= 0:
        return ()
    known = [canary.secret for canary in canaries]
    return draw_secrets(pattern, number=number, seed=seed, exclude=known)


def _groups(canaries: Sequence[SecretCanary], found: Extraction) -> Iterator[AuditedGroup]:
    said = sorted({canary.copies for canary in canaries}, key=lambda copies: (not copies, copies))
    listed, drawn = found.secrets[: len(canaries)], found.secrets[len(canaries) :]
    for copies in said:
        pairs = zip(canaries, listed, strict=True)
        secrets = tuple(secret for canary, secret in pairs if canary.copies == copies)
        yield AuditedGroup(copies=copies, found=replace(found, secrets=secrets))
    if drawn:
        yield AuditedGroup(copies=0, found=replace(found, secrets=drawn), drawn=True)


def _losses(groups: Sequence[AuditedGroup]) -> np.ndarray:
    losses = [secret.truth_loss for group in groups for secret in group.found.secrets]
    return np.array(losses, dtype=np.float64)


def _compared(tested: Sequence[AuditedGroup], others: Sequence[AuditedGroup]) -> RankTest | None:
    """Secrets beside others of their patterns; None where no pattern has both."""
    patterns = {group.pattern for group in tested} & {group.pattern for group in others}
    strata = [
        _places(*([g for g in side if g.pattern == pattern] for side in (tested, others)))
        for pattern in sorted(patterns)
    ]
    return permutation_test(strata) if strata else None


def _places(
    tested: Sequence[AuditedGroup], others: Sequence[AuditedGroup]
) -> tuple[np.ndarray, np.ndarray]:
    """Each secret's places among all of one pattern, added up over the models."""
    own, rest = [], []
    for model in sorted({group.model for group in tested}):
        sides = [
            _losses([group for group in side if group.model == model]) for side in (tested, others)
        ]
        places = rankdata(np.concatenate(sides))
        own.append(places[: len(sides[0])])
        rest.append(places[len(sides[0]) :])
    return np.sum(own, axis=0), np.sum(rest, axis=0)
