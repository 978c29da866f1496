"""Audit of planted secrets against controls that were never planted.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 4.2 and 4.3.

Differs from the paper: planted secrets are compared with controls of the same pattern that were
never planted: the manifest's, and others that are sampled now, since each costs only one loss. If
the model read none of them, every choice of as many secrets is as likely to rank as high as the
planted ones, whatever words the model prefers. `permutation_test` counts these choices.

A sampled control that occurs in the training text by chance ranks high, and makes a leak harder to
show, never easier. The unit is the secret.
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
    RANK_SAMPLE,
    Extraction,
    Row,
    extract_secrets,
    hamming_by_chance,
    mean_exposure,
    median_rank_kind,
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
"""Least number of controls of each pattern. If one of ten planted secrets ranks before all of them,
it is significant at 1 in 100, after correction for ten secrets and two tests."""

UNCHECKED = claims.Check("alive", "could not run", "No labelled utterances were given.")

_STEPS = 1000
"""Steps of progress of a pattern."""

_GUESS_COLUMNS = ("guess", "guesses", "loss", "losses", "certainty", "right", "hamming")


def audit_secrets(
    model: WhiteBox,
    canaries: Sequence[SecretCanary],
    *,
    seed: int,
    budget: int = BUDGET,
    sample: int = RANK_SAMPLE,
    controls: int = CONTROLS,
    alive: claims.Check = UNCHECKED,
    progress: Progress | None = None,
) -> Result:
    """Search a model for each pattern of a manifest, and rank the true secrets.

    For budget and sample see `extract_secrets`. Each pattern is searched once.

    Args:
        canaries: planted ones, and controls.
        seed: of the search, the sample of a rank, and the controls that are sampled now.
        controls: of each pattern; those that the manifest lacks are sampled.
        alive: the check of that name.
        progress: called with (thousandths of patterns done, thousandths in all).

    Raises:
        ValueError: no canary was planted, or a setting is wrong.
        DataError: the model cannot read a canary or lacks its labels.
    """
    _validate.at_least(1, planted=sum(canary.planted for canary in canaries))
    patterns = list(dict.fromkeys(canary.parsed for canary in canaries))
    extractions: list[Extraction] = []

    def report_progress(done: int, total: int) -> None:
        if progress:
            finished = len(extractions) * _STEPS + done * _STEPS // total
            progress(finished, len(patterns) * _STEPS)

    for pattern in patterns:
        of_pattern = [canary for canary in canaries if canary.parsed == pattern]
        of_pattern.sort(key=lambda canary: (not canary.copies, canary.copies))
        secrets = [canary.secret for canary in of_pattern]
        missing = controls - sum(canary.control for canary in of_pattern)
        number = max(0, min(missing, pattern.space - len(of_pattern)))
        sampled = draw_secrets(pattern, number=number, seed=seed, exclude=secrets) if number else ()
        extraction = extract_secrets(
            objective_of(model, pattern),
            truths=[*secrets, *sampled],
            seed=seed,
            budget=budget,
            sample=sample,
            progress=report_progress,
        )
        origins = [{"copies": canary.copies, "drawn": False} for canary in of_pattern]
        origins += [{"copies": 0, "drawn": True}] * number
        rows = ({**origin, **row} for origin, row in zip(origins, extraction.secrets, strict=True))
        extractions.append(replace(extraction, secrets=tuple(rows)))
    return audit_result(extractions, alive=alive)


def audit_result(extractions: Sequence[Extraction], *, alive: claims.Check = UNCHECKED) -> Result:
    """One row per secret, the summary of planted secrets and controls, and the claim.

    Args:
        extractions: of each pattern. Their rows also have the copies that were planted, fewest
            first and controls last, and whether a control was sampled now ("drawn").
        alive: the check of that name.
    """
    secrets = list(_rows(extractions))
    planted = [row for row in secrets if row["copies"]]
    unplanted = [row for row in secrets if not row["copies"]]
    controls = [row for row in unplanted if not row["drawn"]]
    sampled = [row for row in unplanted if row["drawn"]]
    ranks, control_ranks = _rank_test(planted, unplanted), _rank_test(controls, sampled)
    exposures, unplanted_exposures = (_values(rows, "exposure") for rows in (planted, unplanted))
    difference = None
    if exposures and unplanted_exposures:
        difference = replace(
            difference_of_means(exposures, unplanted_exposures),
            name="exposure above controls",
            unit="bits",
        )
    against = "unplanted secrets of the same patterns"
    test = ranks and claims.Test(ranks.p, ranks.least, LEVEL, against)
    deviation = stdev(unplanted_exposures) if len(unplanted_exposures) > 1 else inf
    powerful = claims.powerful(
        test,
        detectable=claims.detectable_shift(
            deviation, len(exposures), len(unplanted_exposures), alpha=LEVEL
        ),
        wanted=EXPOSURE_BITS,
        effect="an exposure of {} bits above controls",
    )
    checks = (alive, powerful)
    claim = claims.Claim("extract utterances", test, checks, difference)
    groups = {(row["_pattern"], row["copies"]): row for row in planted}.values()
    return Result(
        kind="SecretAudit",
        summary={
            **claim.summary(),
            "p_value": ranks and ranks.p,
            "p_of_all": ranks and ranks.of_sum,
            "p_of_first": ranks and ranks.of_first,
            "p_least": ranks and ranks.least,
            "level": LEVEL,
            "search": " ".join(sorted({extraction.search for extraction in extractions})),
            "patterns": len(extractions),
            **_group_summary("planted", planted),
            "accuracy_by_chance": fmean(1 / row["_space"] for row in groups),
            "hamming_by_chance": fmean(row["hamming_by_chance"] for row in groups),
            **_group_summary("controls", controls),
            "controls_p_value": control_ranks and control_ranks.p,
            **_group_summary("drawn", sampled),
            **columns("exposure_difference", difference),
            "certainty_among": (
                "all" if all(extraction.exhaustive for extraction in extractions) else "tried"
            ),
            "seed": extractions[0].seed,
        },
        rows=tuple({name: row[name] for name in row if name[0] != "_"} for row in secrets),
        claim=claim,
    )


def _rows(extractions: Sequence[Extraction]) -> Iterator[Row]:
    """One row per secret; columns with an underscore are not saved.

    A planted secret has the number of controls of its pattern, and of those with no higher loss.
    Sampled controls have losses and ranks, no guesses.
    """
    numbers = count(1)
    for pattern, extraction in enumerate(extractions):
        controls = [row["truth_loss"] for row in extraction.secrets if not row["copies"]]
        for row in extraction.secrets:
            before = sum(loss <= row["truth_loss"] for loss in controls) if row["copies"] else None
            yield {
                "number": next(numbers),
                "copies": row["copies"],
                "drawn": row["drawn"],
                "space_bits": sum(map(log2, extraction.sizes)),
                "hamming_by_chance": hamming_by_chance(extraction.sizes),
                "search": extraction.search,
                "controls_before": before,
                "controls_asked": len(controls) if row["copies"] else None,
                **row,
                **(dict.fromkeys(_GUESS_COLUMNS) if row["drawn"] else {}),
                "_pattern": pattern,
                "_space": prod(extraction.sizes),
            }


def _group_summary(name: str, secrets: Sequence[Row]) -> dict[str, object]:
    """Entries of the summary about a group; the unit of an interval is the secret.

    Secrets of one pattern share the guesses. So the shares of extracted secrets and of wrong words
    have intervals only if all secrets have different patterns.
    """
    if not secrets:
        return {name: 0}
    summary: dict[str, object] = {name: len(secrets)}
    if name != "drawn":
        summary[f"{name}_right"] = sum(bool(row["right"]) for row in secrets)
        share_pattern = len({row["_pattern"] for row in secrets}) < len(secrets)
        for measure, column in (("accuracy", "right"), ("hamming", "hamming")):
            mean = bounded_mean(_values(secrets, column))
            if mean is not None and share_pattern:
                mean = replace(mean, low=None, high=None)
            summary |= columns(f"{name}_{measure}", mean)
    rows = [row for row in secrets if row["rank"] is not None]
    ceiling = max((log2(row["_space"]) for row in rows), default=1.0)
    exposure = mean_exposure(rows, _values(secrets, "exposure"), ceiling=ceiling)
    return summary | {
        f"{name}_median_rank": median(row["rank"] for row in rows) if rows else None,
        f"{name}_median_rank_known": median_rank_kind(rows),
        **columns(f"{name}_exposure", exposure),
        f"{name}_bounded": sum(row["rank_known"] == "bounded" for row in rows),
    }


def _values(secrets: Sequence[Row], column: str) -> list[float]:
    """The values of a column that are not None."""
    return [float(row[column]) for row in secrets if row[column] is not None]


def _rank_test(tested: Sequence[Row], reference: Sequence[Row]) -> RankTest | None:
    """Compare ranks of secrets with others of the same patterns; None if there are none."""
    strata = []
    shared = {row["_pattern"] for row in tested} & {row["_pattern"] for row in reference}
    for pattern in sorted(shared):
        losses, reference_losses = (
            [row["truth_loss"] for row in side if row["_pattern"] == pattern]
            for side in (tested, reference)
        )
        ranks = rankdata(np.array([*losses, *reference_losses], np.float64))
        strata.append((ranks[: len(losses)], ranks[len(losses) :]))
    return permutation_test(strata) if strata else None
