"""Audit of planted secrets against controls that were never planted.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 4.2 and 4.3.

Differs from the paper: planted secrets are compared with controls of the same rule that were never
planted: the manifest's, and others that are sampled now, since each costs only a loss. A model that
never read any of them treats all alike, whatever words it prefers, so that every choice of as many
secrets is as likely to rank as high as the planted ones. `permutation_test` counts these choices.

A sampled control that occurs in the training text all the same ranks high, and makes a leak harder
to show, never easier. The unit is the secret.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from math import inf, log2, prod
from statistics import fmean, median, stdev

import numpy as np
from scipy.stats import rankdata

from vestige import _validate, claims
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.searches import BUDGET, Progress
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
from vestige.data.canaries.patterns import draw_secrets
from vestige.data.canaries.utterances import SecretCanary
from vestige.metrics.estimates import bounded_mean, columns, difference_of_means
from vestige.metrics.tests import RankTest, permutation_test
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


def audit_secrets(
    model: WhiteBox,
    canaries: Sequence[SecretCanary],
    *,
    seed: int,
    budget: int = BUDGET,
    sample: int = SAMPLE,
    controls: int = CONTROLS,
    alive: claims.Check = UNCHECKED,
    progress: Progress | None = None,
) -> Result:
    """Search a model for every pattern of a manifest, and rank the true secrets.

    For budget and sample see `extract_secrets`. Each pattern is searched once, whatever its
    secrets.

    Args:
        canaries: planted ones, and controls.
        seed: of the search, the sample of a rank, and the controls that are sampled now.
        controls: of each pattern; those that the manifest lacks are sampled.
        alive: the check of the model on labelled utterances.
        progress: called with (thousandths of patterns done, thousandths in all).

    Raises:
        ValueError: no canary was planted, or a setting is wrong.
        DataError: the model cannot read a canary or lacks its labels.
    """
    _validate.at_least(1, planted=sum(canary.planted for canary in canaries))
    patterns = list(dict.fromkeys(canary.parsed for canary in canaries))
    found: list[Extraction] = []

    def part(done: int, total: int) -> None:
        if progress:
            progress(len(found) * _PARTS + done * _PARTS // total, len(patterns) * _PARTS)

    for pattern in patterns:
        own = [canary for canary in canaries if canary.parsed == pattern]
        own.sort(key=lambda canary: (not canary.copies, canary.copies))
        known = [canary.secret for canary in own]
        missing = controls - sum(canary.control for canary in own)
        number = max(0, min(missing, pattern.space - len(own)))
        drawn = draw_secrets(pattern, number=number, seed=seed, exclude=known) if number else ()
        extraction = extract_secrets(
            objective_of(model, pattern),
            truths=[*known, *drawn],
            seed=seed,
            budget=budget,
            sample=sample,
            progress=part,
        )
        said = [{"copies": canary.copies, "drawn": False} for canary in own]
        said += [{"copies": 0, "drawn": True}] * number
        rows = ({**more, **row} for more, row in zip(said, extraction.secrets, strict=True))
        found.append(replace(extraction, secrets=tuple(rows)))
    return audit_result(found, alive=alive)


def audit_result(extractions: Sequence[Extraction], *, alive: claims.Check = UNCHECKED) -> Result:
    """One row a secret, the summary of planted secrets and controls, and the claim.

    Args:
        extractions: of each pattern in turn. Their rows also have the copies that were planted,
            fewest first and controls last, and whether a control was sampled now.
        alive: the check of the model on labelled utterances.
    """
    secrets = list(_rows(extractions))
    planted = [row for row in secrets if row["copies"]]
    unplanted = [row for row in secrets if not row["copies"]]
    controls = [row for row in unplanted if not row["drawn"]]
    drawn = [row for row in unplanted if row["drawn"]]
    found, strays = _compared(planted, unplanted), _compared(controls, drawn)
    own, never = (_known(side, "exposure") for side in (planted, unplanted))
    difference = None
    if own and never:
        apart = difference_of_means(own, never)
        difference = replace(apart, name="exposure above controls", unit="bits")
    against = "unplanted secrets of the same patterns"
    test = found and claims.Test(found.p, found.least, LEVEL, against)
    spread = stdev(never) if len(never) > 1 else inf
    powerful = claims.powerful(
        test,
        detectable=claims.detectable_shift(spread, len(own), len(never), alpha=LEVEL),
        wanted=EXPOSURE_BITS,
        effect="an exposure of {} bits above controls",
    )
    checks = (alive, powerful)
    claim = claims.Claim("extract utterances", test, checks, difference)
    alike = {(row["_pattern"], row["copies"]): row for row in planted}.values()
    return Result(
        kind="SecretAudit",
        summary={
            **claim.summary(),
            "p_value": found and found.p,
            "p_of_all": found and found.of_sum,
            "p_of_first": found and found.of_first,
            "p_least": found and found.least,
            "level": LEVEL,
            "search": " ".join(sorted({one.search for one in extractions})),
            "patterns": len(extractions),
            **_measures("planted", planted),
            "accuracy_by_chance": fmean(1 / row["_space"] for row in alike),
            "hamming_by_chance": fmean(row["hamming_by_chance"] for row in alike),
            **_measures("controls", controls),
            "controls_p_value": strays and strays.p,
            **_measures("drawn", drawn),
            **columns("exposure_difference", difference),
            "certainty_among": "all" if all(one.whole for one in extractions) else "tried",
            "seed": extractions[0].seed,
        },
        rows=tuple({name: row[name] for name in row if name[0] != "_"} for row in secrets),
        claim=claim,
    )


def _rows(extractions: Sequence[Extraction]) -> Iterator[Row]:
    """One row a secret; names with an underscore are not saved.

    For a planted one, how many controls of its pattern have no higher loss, and of how many.
    Sampled controls have losses and ranks, no guesses.
    """
    numbers = count(1)
    for pattern, found in enumerate(extractions):
        never = [row["truth_loss"] for row in found.secrets if not row["copies"]]
        for row in found.secrets:
            before = sum(loss <= row["truth_loss"] for loss in never) if row["copies"] else None
            yield {
                "number": next(numbers),
                "copies": row["copies"],
                "drawn": row["drawn"],
                "space_bits": sum(map(log2, found.sizes)),
                "hamming_by_chance": hamming_by_chance(found.sizes),
                "search": found.search,
                "controls_before": before,
                "controls_asked": len(never) if row["copies"] else None,
                **row,
                **(dict.fromkeys(_OF_GUESSES) if row["drawn"] else {}),
                "_pattern": pattern,
                "_space": prod(found.sizes),
            }


def _measures(name: str, secrets: Sequence[Row]) -> dict[str, object]:
    """Numbers of a group; the unit of an interval is the secret.

    Secrets of one pattern share the guesses, so that there is no interval of the share that is
    extracted whole, nor of wrong words, unless each secret has a pattern of its own.
    """
    if not secrets:
        return {name: 0}
    number = len(secrets)
    found: dict[str, object] = {name: number}
    if name != "drawn":
        found[f"{name}_right"] = sum(bool(row["right"]) for row in secrets)
        shared = len({row["_pattern"] for row in secrets}) < number
        for measure, column in (("accuracy", "right"), ("hamming", "hamming")):
            mean = bounded_mean(_known(secrets, column))
            if mean is not None and shared:
                mean = replace(mean, low=None, high=None)
            found |= columns(f"{name}_{measure}", mean)
    rows = [row for row in secrets if row["rank"] is not None]
    ceiling = max((log2(row["_space"]) for row in rows), default=1.0)
    exposure = mean_exposure(rows, _known(secrets, "exposure"), ceiling=ceiling)
    return found | {
        f"{name}_median_rank": median(row["rank"] for row in rows) if rows else None,
        f"{name}_median_rank_known": median_known(rows),
        **columns(f"{name}_exposure", exposure),
        f"{name}_bounded": sum(row["rank_known"] == "bounded" for row in rows),
    }


def _known(secrets: Sequence[Row], column: str) -> list[float]:
    """The values of secrets that have one."""
    return [float(row[column]) for row in secrets if row[column] is not None]


def _compared(tested: Sequence[Row], others: Sequence[Row]) -> RankTest | None:
    """Secrets against others of their patterns, by ranks; None of none."""
    strata = []
    shared = {row["_pattern"] for row in tested} & {row["_pattern"] for row in others}
    for pattern in sorted(shared):
        own, rest = (
            [row["truth_loss"] for row in side if row["_pattern"] == pattern]
            for side in (tested, others)
        )
        ranks = rankdata(np.array([*own, *rest], np.float64))
        strata.append((ranks[: len(own)], ranks[len(own) :]))
    return permutation_test(strata) if strata else None
