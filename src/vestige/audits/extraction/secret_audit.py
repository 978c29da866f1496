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
from dataclasses import replace
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
from vestige.metrics.estimates import bounded_mean, columns, difference_of_means
from vestige.metrics.ranks import RankTest, permutation_test
from vestige.models.white_box import WhiteBox
from vestige.results import Result

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
    alive: tuple[claims.Check, ...] = (UNCHECKED,),
    progress: Progress | None = None,
) -> Result:
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
        alive: the check of each model on labelled utterances.
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
    return audit_result(found, patterns=len(patterns), alive=alive)


def audit_result(
    extractions: Sequence[Extraction],
    *,
    patterns: int = 1,
    alive: tuple[claims.Check, ...] = (UNCHECKED,),
) -> Result:
    """One row a secret, the summary of planted secrets and controls, and the claim.

    Args:
        extractions: model by model, of each pattern in turn. Their rows also have the copies that
            were planted, fewest first and controls last, and whether a control was sampled now.
        patterns: number of patterns.
        alive: the check of each model on labelled utterances.
    """
    secrets = [
        Audited(number % patterns, number // patterns, place, found, row)
        for number, found in enumerate(extractions)
        for place, row in enumerate(found.secrets)
    ]
    planted, controls, drawn = (
        [one for one in secrets if one.group == name] for name in ("planted", "controls", "drawn")
    )
    unplanted = [one for one in secrets if not one.row["copies"]]
    found, strays = _compared(planted, unplanted), _compared(controls, drawn)
    own, never = (_by_secret(side, "exposure") for side in (planted, unplanted))
    difference = None
    if own and never:
        apart = difference_of_means(own, never)
        difference = replace(apart, name="exposure above controls", unit="bits")
    against = "unplanted secrets of the same patterns"
    test = found and claims.Test(found.p, found.least, LEVEL, against)
    models, first = len(extractions) // patterns, extractions[0]
    checks = (*alive, _independent(secrets, models), _powerful(test, own, never))
    claim = claims.Claim("extract utterances", test, checks, difference)
    sizes = {(one.model, one.pattern, one.row["copies"]): one.found.sizes for one in planted}
    return Result(
        kind="SecretAudit",
        summary={
            **claim.summary(),
            "p_value": found and found.p,
            "p_of_all": found and found.of_sum,
            "p_of_first": found and found.of_first,
            "p_least": found and found.least,
            "level": LEVEL,
            "attack": first.attack,
            "search": " ".join(sorted({one.search for one in extractions})),
            "objective": first.objective,
            "patterns": patterns,
            "models": models,
            **_measures("planted", planted),
            "accuracy_by_chance": fmean(1 / prod(one) for one in sizes.values()),
            "hamming_by_chance": fmean(hamming_by_chance(one) for one in sizes.values()),
            **_measures("controls", controls),
            "controls_p_value": strays and strays.p,
            **_measures("drawn", drawn),
            **columns("exposure_difference", difference),
            "certainty_among": "all" if all(one.whole for one in extractions) else "tried",
            "seed": first.seed,
        },
        rows=tuple(_rows(secrets)),
        claim=claim,
    )


def _rows(secrets: Sequence[Audited]) -> Iterator[dict[str, object]]:
    """One row a secret, model by model.

    For a planted one, how many controls of its pattern have no higher loss in its model, and of how
    many. Sampled controls have losses and ranks, no guesses.
    """
    controls: dict[tuple[int, int], list[float]] = {}
    for one in secrets:
        losses = controls.setdefault((one.model, one.pattern), [])
        losses += [] if one.row["copies"] else [one.row["truth_loss"]]
    for number, one in enumerate(secrets, 1):
        row, before, others = one.row, None, None
        if row["copies"]:
            losses = controls[one.model, one.pattern]
            before, others = sum(loss <= row["truth_loss"] for loss in losses), len(losses)
        yield {
            "number": number,
            "model": one.model + 1,
            "copies": row["copies"],
            "drawn": row["drawn"],
            "space_bits": sum(map(log2, one.found.sizes)),
            "hamming_by_chance": hamming_by_chance(one.found.sizes),
            "search": one.found.search,
            "controls_before": before,
            "controls_asked": others,
            **row,
            **(dict.fromkeys(_OF_GUESSES) if row["drawn"] else {}),
        }


def _independent(secrets: Sequence[Audited], models: int) -> claims.Check:
    """Models that are copies of another add nothing; each secret counts once."""
    losses = [
        tuple(np.round(_losses([one for one in secrets if one.model == model]), 6))
        for model in range(models)
    ]
    copies = models - len(set(losses))
    if copies:
        return claims.Check(
            "independent", "failed", f"{copies} of {models} models are copies of another.",
            (claims.NO_LEAK,),
        )  # fmt: skip
    number = sum(one.group == "planted" for one in secrets) // models
    what = "1 planted secret counts" if number == 1 else f"{number} planted secrets count"
    return claims.Check("independent", "passed", f"{what} once each, in any number of models.")


def _powerful(
    test: claims.Test | None, planted: Sequence[float], never: Sequence[float]
) -> claims.Check:
    """The difference of exposure that as many secrets, spread like controls, would show."""
    spread = stdev(never) if len(never) > 1 else inf
    return claims.powerful(
        test,
        detectable=claims.detectable_shift(spread, len(planted), len(never), alpha=LEVEL),
        wanted=EXPOSURE_BITS,
        effect="an exposure of {} bits above controls",
    )


def _measures(name: str, secrets: Sequence[Audited]) -> dict[str, object]:
    """Numbers of a group; the unit of an interval is the secret.

    Secrets of one pattern share the guesses, so that there is no interval of the share that is
    extracted whole, nor of wrong words, unless each secret has a pattern of its own.
    """
    if not secrets:
        return {name: 0}
    number = len(secrets) // len({one.model for one in secrets})
    ranked = [one for one in secrets if one.row["rank"] is not None]
    rows = [one.row for one in ranked]
    ceiling = max((log2(prod(one.found.sizes)) for one in ranked), default=1.0)
    exposure = mean_exposure(rows, ceiling=ceiling, bits=_by_secret(secrets, "exposure"))
    found: dict[str, object] = {name: number}
    if name != "drawn":
        found[f"{name}_right"] = sum(bool(one.row["right"]) for one in secrets)
        own = len({one.pattern for one in secrets}) == number
        for measure, column in (("accuracy", "right"), ("hamming", "hamming")):
            mean = bounded_mean(_by_secret(secrets, column))
            if mean is not None and not own:
                mean = replace(mean, low=None, high=None)
            found |= columns(f"{name}_{measure}", mean)
    return found | {
        f"{name}_median_rank": median(row["rank"] for row in rows) if rows else None,
        f"{name}_median_rank_known": median_known(rows),
        **columns(f"{name}_exposure", exposure),
        f"{name}_bounded": sum(row["rank_known"] == "bounded" for row in rows),
    }


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
