"""Audit of planted secrets against controls that were never planted.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 4.2 and 4.3.

Differs from the paper: planted secrets are compared with controls of the same rule that were never
planted: the manifest's, and others that are sampled now, since each costs only a loss. A model that
never read any of them treats all alike, whatever words it prefers, so that every choice of as many
secrets is as likely to rank as high as the planted ones. `permutation_test` counts these choices.

A sampled control that occurs in the training text all the same ranks high, and makes a leak harder
to show, never easier. The unit is the secret: in several models it is one, with its ranks summed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log2, prod
from statistics import fmean, median, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from vestige import _validate, claims
from vestige.audits.extraction.objective import ObjectiveKind, objective_of
from vestige.audits.extraction.ranks import Progress
from vestige.audits.extraction.searches import BUDGET, Search
from vestige.audits.extraction.unknown_words import (
    SAMPLE,
    Extraction,
    Row,
    extract_secrets,
    hamming_by_chance,
    mean_exposure,
    median_known,
)
from vestige.claims.effects import EXPOSURE_BITS
from vestige.data.secret_canaries import SecretCanary, draw_secrets
from vestige.metrics.estimates import Estimate, bounded_mean, columns, difference_of_means
from vestige.metrics.permutation import RankTest, permutation_test
from vestige.models.white_box import WhiteBox
from vestige.results import Measurement

LEVEL = 0.01
"""Level of the test."""

CONTROLS = 1_999
"""Controls of each pattern at least: with so many, one of ten planted secrets that ranks before all
of them is significant at 1 in 100, after correction for ten secrets and two tests."""

UNCHECKED = claims.Check("alive", "could not run", "No labelled utterances were given.")

_PARTS = 1000
_OF_GUESSES = ("guess", "guesses", "loss", "losses", "certainty", "right", "hamming")


class Audited(NamedTuple):
    """A secret in one model."""

    pattern: int
    model: int
    place: int  # among the secrets of its pattern
    found: Extraction
    row: Row

    @property
    def group(self) -> str:
        """Planted, controls of the manifest, or controls that were sampled now."""
        return "planted" if self.row["copies"] else "drawn" if self.row["drawn"] else "controls"

    @property
    def control(self) -> bool:
        return not self.row["copies"]


@dataclass(frozen=True, kw_only=True)
class SecretAudit(Measurement):
    """Extraction of the planted secrets and controls of a manifest.

    Attributes:
        extractions: model by model, of each pattern in turn. Their rows also have the copies that
            were planted, fewest first and controls last, and whether a control was sampled now.
        patterns: number of patterns.
        alive: the check of each model on labelled utterances.
    """

    extractions: tuple[Extraction, ...]
    patterns: int = 1
    alive: tuple[claims.Check, ...] = (UNCHECKED,)

    @property
    def models(self) -> int:
        """Number of models."""
        return len(self.extractions) // self.patterns

    @cached_property
    def secrets(self) -> tuple[Audited, ...]:
        """Every secret in every model."""
        return tuple(
            Audited(number % self.patterns, number // self.patterns, place, found, row)
            for number, found in enumerate(self.extractions)
            for place, row in enumerate(found.secrets)
        )

    def of(self, *groups: str) -> list[Audited]:
        """The secrets of some groups: "planted", "controls", "drawn"."""
        return [one for one in self.secrets if one.group in groups]

    @cached_property
    def test(self) -> RankTest | None:
        """Permutation test of the planted secrets against all controls; None without controls."""
        return _compared(self.of("planted"), self.of("controls", "drawn"))

    @cached_property
    def strays(self) -> RankTest | None:
        """The same of the manifest's controls against those sampled now; None without both."""
        return _compared(self.of("controls"), self.of("drawn"))

    @cached_property
    def claim(self) -> claims.Claim:
        """The verdict on the ranks of planted secrets among the controls, at `LEVEL`."""
        found = self.test
        never = "unplanted secrets of the same patterns"
        test = found and claims.Test(found.p, found.least, LEVEL, never)
        checks = (*self.alive, self._independent(), self._powerful(test))
        return claims.Claim("extract utterances", test, checks, self._difference())

    @property
    def verdict(self) -> claims.Verdict:
        """As the claim's."""
        return self.claim.verdict

    def _independent(self) -> claims.Check:
        """Models that are copies of another add nothing; each secret counts once."""
        losses = [
            tuple(np.round(_losses([one for one in self.secrets if one.model == model]), 6))
            for model in range(self.models)
        ]
        copies = self.models - len(set(losses))
        if copies:
            return claims.Check(
                "independent", "failed",
                f"{copies} of {self.models} models are copies of another.", (claims.NO_LEAK,),
            )  # fmt: skip
        number = len(self.of("planted")) // self.models
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

    def _difference(self) -> Estimate | None:
        """Mean exposure of planted secrets above that of controls; the unit is the secret."""
        planted, never = self._exposures()
        if not (planted and never):
            return None
        found = difference_of_means(planted, never)
        return replace(found, name="exposure above controls", unit="bits")

    def _exposures(self) -> tuple[list[float], list[float]]:
        """Exposures of planted secrets and of controls, each a mean over the models."""
        sides = self.of("planted"), self.of("controls", "drawn")
        planted, never = (_by_secret(side, "exposure") for side in sides)
        return planted, never

    def summary(self) -> dict[str, object]:
        """One row of a results table; None for what needs ranks if there are none."""
        first, test, planted = self.extractions[0], self.test, self.of("planted")
        sizes = {(one.model, one.pattern, one.row["copies"]): one.found.sizes for one in planted}
        return {
            **self.claim.summary(),
            "p_value": test and test.p,
            "p_of_all": test and test.of_sum,
            "p_of_first": test and test.of_first,
            "p_least": test and test.least,
            "level": LEVEL,
            "attack": first.attack,
            "search": " ".join(sorted({found.search for found in self.extractions})),
            "objective": first.objective,
            "patterns": self.patterns,
            "models": self.models,
            **self._measures("planted"),
            "accuracy_by_chance": fmean(1 / prod(one) for one in sizes.values()),
            "hamming_by_chance": fmean(hamming_by_chance(one) for one in sizes.values()),
            **self._measures("controls"),
            "controls_p_value": self.strays and self.strays.p,
            **self._measures("drawn"),
            **columns("exposure_difference", self._difference()),
            "certainty_among": "all" if all(one.whole for one in self.extractions) else "tried",
            "seed": first.seed,
        }

    def _measures(self, name: str) -> dict[str, object]:
        """Numbers of a group; the unit of an interval is the secret.

        Secrets of one pattern share the guesses, so that there is no interval of the share that is
        extracted whole, nor of wrong words, unless each secret has a pattern of its own.
        """
        secrets = self.of(name)
        if not secrets:
            return {name: 0}
        number = len(secrets) // len({one.model for one in secrets})
        ranked = [one for one in secrets if one.row["rank"] is not None]
        rows = [one.row for one in ranked]
        ceiling = max((log2(prod(one.found.sizes)) for one in ranked), default=1.0)
        exposure = mean_exposure(rows, ceiling=ceiling, bits=_by_secret(secrets, "exposure"))
        of_ranks = {
            f"{name}_median_rank": median(row["rank"] for row in rows) if rows else None,
            f"{name}_median_rank_known": median_known(rows),
            **columns(f"{name}_exposure", exposure),
            f"{name}_bounded": sum(row["rank_known"] == "bounded" for row in rows),
        }
        if name == "drawn":
            return {name: number, **of_ranks}
        own = len({one.pattern for one in secrets}) == number
        return {
            name: number,
            f"{name}_right": sum(bool(one.row["right"]) for one in secrets),
            **columns(f"{name}_accuracy", _mean(_by_secret(secrets, "right"), own=own)),
            **columns(f"{name}_hamming", _mean(_by_secret(secrets, "hamming"), own=own)),
            **of_ranks,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret, model by model.

        For a planted one, how many controls of its pattern have no higher loss in its model, and
        of how many. Sampled controls have losses and ranks, no guesses.
        """
        controls = [
            np.array([row["truth_loss"] for row in found.secrets if not row["copies"]], np.float64)
            for found in self.extractions
        ]
        for number, one in enumerate(self.secrets, 1):
            others = controls[one.model * self.patterns + one.pattern]
            own = None if one.control else one.row["truth_loss"]
            guessed = dict.fromkeys(_OF_GUESSES) if one.row["drawn"] else {}
            yield {
                "number": number,
                "model": one.model + 1,
                "copies": one.row["copies"],
                "drawn": one.row["drawn"],
                "space_bits": sum(map(log2, one.found.sizes)),
                "hamming_by_chance": hamming_by_chance(one.found.sizes),
                "search": one.found.search,
                "controls_before": None if own is None else int((others <= own).sum()),
                "controls_asked": None if own is None else len(others),
                **one.row,
                **guessed,
            }


def audit_secrets(
    model: WhiteBox | Sequence[WhiteBox],
    canaries: Sequence[SecretCanary],
    *,
    seed: int,
    attack: str | Search = "auto",
    objective: ObjectiveKind = "joint",
    references: Sequence[WhiteBox] = (),
    budget: int = BUDGET,
    sample: int = SAMPLE,
    controls: int = CONTROLS,
    progress: Progress | None = None,
) -> SecretAudit:
    """Search a model for every pattern of a manifest, and rank the true secrets.

    Args:
        model: the model; or several, all trained on the text with the canaries.
        canaries: planted ones, and controls.
        seed: of the search, the sample of a rank, and the controls that are sampled now.
        attack: see `extract_secrets`; one search per pattern, whatever its secrets.
        objective: see `objective_of`.
        references: models that never saw the secrets, for "calibrated".
        budget: see `extract_secrets`; so is sample.
        controls: of each pattern; those that the manifest lacks are sampled.
        progress: called with (thousandths of patterns done, thousandths in all).

    Raises:
        ValueError: no canary was planted, or a setting is wrong; see `objective_of`.
        DataError: the model cannot read a canary or lacks its labels; see `objective_of`.
    """
    _validate.at_least(1, planted=sum(canary.planted for canary in canaries))
    _validate.at_least(0, controls=controls)
    models = [model] if isinstance(model, WhiteBox) else list(model)
    _validate.at_least(1, models=len(models))
    patterns = list(dict.fromkeys(canary.parsed for canary in canaries))
    found: list[Extraction] = []

    def part(done: int, total: int) -> None:
        if progress:
            whole = len(models) * len(patterns) * _PARTS
            progress(len(found) * _PARTS + done * _PARTS // total, whole)

    for one in models:
        for pattern in patterns:
            own = [canary for canary in canaries if canary.parsed == pattern]
            own.sort(key=lambda canary: (not canary.copies, canary.copies))
            sampled = _sampled(own, controls, seed)
            extraction = extract_secrets(
                objective_of(one, pattern, kind=objective, references=references),
                truths=[*(canary.secret for canary in own), *sampled],
                seed=seed,
                attack=attack,
                budget=budget,
                sample=sample,
                progress=part,
            )
            copies = [canary.copies for canary in own] + [0] * len(sampled)
            rows = [
                {"copies": number, "drawn": place >= len(own), **row}
                for place, (number, row) in enumerate(zip(copies, extraction.secrets, strict=True))
            ]
            found.append(replace(extraction, secrets=tuple(rows)))
    return SecretAudit(extractions=tuple(found), patterns=len(patterns))


def _sampled(canaries: Sequence[SecretCanary], wanted: int, seed: int) -> Sequence[tuple[str, ...]]:
    """Controls besides those that one pattern has in the manifest, if it has so many secrets."""
    pattern = canaries[0].parsed
    missing = wanted - sum(canary.control for canary in canaries)
    number = min(missing, pattern.space - len(canaries))
    if number <= 0:
        return ()
    known = [canary.secret for canary in canaries]
    return draw_secrets(pattern, number=number, seed=seed, exclude=known)


def _losses(secrets: Sequence[Audited]) -> NDArray[np.float64]:
    return np.array([one.row["truth_loss"] for one in secrets], dtype=np.float64)


def _by_secret(secrets: Sequence[Audited], column: str) -> list[float]:
    """A value of each secret that has one, its mean over the models."""
    values: dict[tuple[int, int], list[float]] = {}
    for one in secrets:
        if (own := one.row[column]) is not None:
            values.setdefault((one.pattern, one.place), []).append(float(own))
    return list(map(fmean, values.values()))


def _mean(values: Sequence[float], *, own: bool) -> Estimate | None:
    """A mean, with an interval if each secret has a pattern of its own."""
    found = bounded_mean(values)
    return found if own or found is None else replace(found, low=None, high=None)


def _compared(tested: Sequence[Audited], others: Sequence[Audited]) -> RankTest | None:
    """Secrets against others of their patterns; None if no pattern has both."""
    patterns = {one.pattern for one in tested} & {one.pattern for one in others}
    strata = [
        _ranks(*([one for one in side if one.pattern == pattern] for side in (tested, others)))
        for pattern in sorted(patterns)
    ]
    return permutation_test(strata) if strata else None


def _ranks(
    tested: Sequence[Audited], others: Sequence[Audited]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each secret's ranks among all of one pattern, summed over the models."""
    own, rest = [], []
    for model in sorted({one.model for one in tested}):
        sides = [_losses([one for one in side if one.model == model]) for side in (tested, others)]
        ranks = rankdata(np.concatenate(sides))
        own.append(ranks[: len(sides[0])])
        rest.append(ranks[len(sides[0]) :])
    return np.sum(own, axis=0), np.sum(rest, axis=0)
