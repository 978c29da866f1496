"""Does a model give away the secrets that were planted, and not those that never were?

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
sections 4.2 and 4.3.

Differs from the paper: beside the planted secrets stand controls, drawn alike and never said, and
the question is decided by ranks: how often would secrets that the model never saw stand as high?
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log2
from statistics import fmean, median
from typing import Literal

from vestige import _validate
from vestige.attacks.beam_search import Progress
from vestige.attacks.extraction_result import Extraction
from vestige.attacks.nlu_extraction import Ranking, extract_secrets
from vestige.attacks.secret_guesses import Attack
from vestige.attacks.secret_question import Objective, ask
from vestige.data.secret_canaries import SecretCanary
from vestige.metrics.differences import difference_of_means
from vestige.metrics.extraction import baseline_accuracy, baseline_hamming, null_probability
from vestige.metrics.intervals import Interval
from vestige.models.white_box import WhiteBox

LEVEL = 0.01
"""Ranks that chance brings no more often than this are not taken for chance."""

_PARTS = 1000

Verdict = Literal["leaks", "not shown", "controls stand out", "not ranked"]


@dataclass(frozen=True, kw_only=True)
class AuditedGroup:
    """Secrets of one pattern that were said as often.

    Attributes:
        copies: how often each was planted; 0 for controls.
        found: what was extracted. All of them share the guesses: the attack asks a pattern.
    """

    copies: int
    found: Extraction


@dataclass(frozen=True, kw_only=True)
class SecretAudit:
    """What an attack made of the canaries of a manifest.

    Attributes:
        groups: pattern by pattern, fewest copies first, the controls last.
        patterns: how many patterns there are.
    """

    groups: tuple[AuditedGroup, ...]
    patterns: int

    @property
    def planted(self) -> Extraction:
        """All planted secrets together; sizes and settings are those of the first pattern."""
        return _together([group for group in self.groups if group.copies])

    @property
    def controls(self) -> Extraction | None:
        """All controls together; None without."""
        groups = [group for group in self.groups if not group.copies]
        return _together(groups) if groups else None

    @property
    def verdict(self) -> Verdict:
        """What the ranks say at `LEVEL`.

        Secrets and controls are drawn at random, so that to a model that never saw them every
        rank is as likely. Where controls stand high too, something else than memory ranks them.
        """
        found, never = _chance(self.planted), _chance(self.controls)
        if found is None:
            return "not ranked"
        if never is not None and never <= LEVEL:
            return "controls stand out"
        return "leaks" if found <= LEVEL else "not shown"

    def summary(self) -> dict[str, object]:
        """One row of a results table; what no rank was asked for is None."""
        first, controls = self.groups[0].found, self.controls
        gap, ends = _difference(self.planted, controls)
        groups = [group for group in self.groups if group.copies]
        return {
            "verdict": self.verdict,
            "attack": first.attack,
            "search": " ".join(sorted({group.found.search for group in self.groups})),
            "objective": first.objective,
            "patterns": self.patterns,
            **_measures("planted", self.planted),
            "accuracy_by_chance": fmean(baseline_accuracy(g.found.sizes) for g in groups),
            "hamming_by_chance": fmean(baseline_hamming(g.found.sizes) for g in groups),
            **_measures("controls", controls),
            "exposure_difference": gap,
            "exposure_difference_low": ends and ends.low,
            "exposure_difference_high": ends and ends.high,
            "level": LEVEL,
            "certainty_among": "all" if all(g.found.whole for g in self.groups) else "tried",
            "seed": first.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret; `pandas.DataFrame(result.rows())` is the frame."""
        number = 0
        for group in self.groups:
            for secret in group.found.secrets:
                number += 1
                yield {
                    "number": number,
                    "copies": group.copies,
                    "space_bits": sum(log2(size) for size in group.found.sizes),
                    "hamming_by_chance": baseline_hamming(group.found.sizes),
                    "search": group.found.search,
                    **secret.row(),
                }


def audit_secrets(
    model: WhiteBox,
    canaries: Sequence[SecretCanary],
    *,
    seed: int,
    attack: str | Attack = "auto",
    objective: Objective = "joint",
    references: Sequence[WhiteBox] = (),
    ranking: Ranking | None = None,
    progress: Progress | None = None,
) -> SecretAudit:
    """Ask a model for every pattern of a manifest, and look where the true secrets stand.

    Args:
        model: who is asked; one model.
        canaries: planted ones, and controls.
        seed: decides what an attack leaves to chance, and the sample of a rank.
        attack: see `extract_secrets`; it asks each pattern once, whatever its secrets.
        objective: see `ask`.
        references: models that never saw the secrets, for "calibrated".
        ranking: how the truths are ranked.
        progress: told (thousandths of patterns done, thousandths in all).

    Raises:
        ValueError: no canary was planted, or a setting is wrong; see `ask`.
        DataError: the model cannot read a canary or lacks its labels; see `ask`.
    """
    _validate.at_least(1, planted=sum(canary.planted for canary in canaries))
    patterns = list(dict.fromkeys(canary.parsed for canary in canaries))
    groups: list[AuditedGroup] = []
    for place, pattern in enumerate(patterns):

        def part(done: int, total: int, place: int = place) -> None:
            if progress:
                progress(place * _PARTS + done * _PARTS // total, len(patterns) * _PARTS)

        own = [canary for canary in canaries if canary.parsed == pattern]
        found = extract_secrets(
            ask(model, pattern, objective=objective, references=references),
            truths=[canary.secret for canary in own],
            seed=seed,
            attack=attack,
            ranking=ranking,
            progress=part,
        )
        groups += _groups(own, found)
    return SecretAudit(groups=tuple(groups), patterns=len(patterns))


def _groups(canaries: Sequence[SecretCanary], found: Extraction) -> Iterator[AuditedGroup]:
    said = sorted({canary.copies for canary in canaries}, key=lambda copies: (not copies, copies))
    for copies in said:
        pairs = zip(canaries, found.secrets, strict=True)
        secrets = tuple(secret for canary, secret in pairs if canary.copies == copies)
        yield AuditedGroup(copies=copies, found=replace(found, secrets=secrets))


def _together(groups: Sequence[AuditedGroup]) -> Extraction:
    secrets = tuple(secret for group in groups for secret in group.found.secrets)
    return replace(groups[0].found, secrets=secrets)


def _chance(found: Extraction | None) -> float | None:
    if found is None or not found.ranks:
        return None
    ranks = found.ranks
    return null_probability([rank.rank for rank in ranks], [rank.space for rank in ranks])


def _measures(name: str, found: Extraction | None) -> dict[str, object]:
    if found is None:
        return {name: 0}
    right, (hamming, spread), (bits, ends) = found.accuracy, found.hamming, found.exposure
    return {
        name: len(found.secrets),
        f"{name}_right": right and right.successes,
        f"{name}_accuracy": right and right.rate,
        f"{name}_accuracy_low": right and right.interval.low,
        f"{name}_accuracy_high": right and right.interval.high,
        f"{name}_hamming": hamming,
        f"{name}_hamming_low": spread and spread.low,
        f"{name}_hamming_high": spread and spread.high,
        f"{name}_median_rank": median(r.rank for r in found.ranks) if found.ranks else None,
        f"{name}_exposure": bits,
        f"{name}_exposure_low": ends and ends.low,
        f"{name}_exposure_high": ends and ends.high,
        f"{name}_at_ceiling": sum(rank.at_ceiling for rank in found.ranks),
        f"{name}_chance_probability": _chance(found),
    }


def _difference(
    planted: Extraction, controls: Extraction | None
) -> tuple[float | None, Interval | None]:
    if controls is None or not (planted.ranks and controls.ranks):
        return None, None
    first, second = ([rank.exposure for rank in one.ranks] for one in (planted, controls))
    return fmean(first) - fmean(second), difference_of_means(first, second)
