"""Numbers of the secrets of an audit, with intervals whose unit is the secret."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2
from statistics import fmean, median

from vestige.attacks.extraction.extraction_result import (
    ExtractedSecret,
    Extraction,
    median_known,
)
from vestige.metrics.estimates import Estimate, bounded_mean, columns


@dataclass(frozen=True, kw_only=True)
class AuditedGroup:
    """Secrets of one pattern that were said as often, asked in one model.

    Attributes:
        copies: how often each was planted; 0 for controls.
        found: what was extracted. All of them share the guesses: the attack asks a pattern.
        pattern: which, from 1.
        model: which, from 1.
        drawn: whether these are controls that were drawn when the model was asked.
    """

    copies: int
    found: Extraction
    pattern: int = 1
    model: int = 1
    drawn: bool = False


def together(groups: Sequence[AuditedGroup]) -> Extraction:
    """All secrets of some groups; sizes and settings are those of the first."""
    secrets = tuple(secret for group in groups for secret in group.found.secrets)
    return replace(groups[0].found, secrets=secrets)


def by_secret(
    groups: Sequence[AuditedGroup], value: Callable[[ExtractedSecret], float | None]
) -> list[float]:
    """A value of each secret, its mean over the models; secrets without one are left out."""
    found: dict[object, list[float]] = {}
    for group in groups:
        for place, secret in enumerate(group.found.secrets):
            own = value(secret)
            if own is not None:
                key = (group.pattern, group.copies, group.drawn, place)
                found.setdefault(key, []).append(float(own))
    return [fmean(values) for values in found.values()]


def bits_of(secret: ExtractedSecret) -> float | None:
    """Exposure of a secret; None where it was not ranked."""
    return None if secret.rank is None else secret.rank.exposure


def measures(
    name: str, groups: Sequence[AuditedGroup], *, ranks_only: bool = False
) -> dict[str, object]:
    """Numbers of some secrets; the unit of an interval is the secret.

    Secrets of one pattern share the guesses, so that there is no interval of the share that is
    extracted whole, nor of wrong words, unless each secret has a pattern of its own.
    """
    if not groups:
        return {name: 0}
    found = together(groups)
    bits = by_secret(groups, bits_of)
    ceiling = max((log2(rank.space) for rank in found.ranks), default=1.0)
    alone = len(bits) == 1 == len(found.ranks)
    exposure = found.exposure if alone else bounded_mean(bits, ceiling=ceiling)
    ranked = {
        f"{name}_median_rank": median(r.rank for r in found.ranks) if found.ranks else None,
        f"{name}_median_rank_known": median_known(found.ranks),
        **columns(f"{name}_exposure", exposure),
        f"{name}_bounded": sum(rank.bounded for rank in found.ranks),
    }
    number = len(found.secrets) // len({group.model for group in groups})
    if ranks_only:
        return {name: number, **ranked}
    own = len({group.pattern for group in groups}) == number
    right = by_secret(groups, lambda secret: secret.right)
    hamming = by_secret(groups, lambda secret: secret.hamming)
    return {
        name: number,
        f"{name}_right": sum(bool(one.right) for one in found.secrets),
        **columns(f"{name}_accuracy", _mean(right, own=own)),
        **columns(f"{name}_hamming", _mean(hamming, own=own)),
        **ranked,
    }


def _mean(values: Sequence[float], *, own: bool) -> Estimate | None:
    """A mean, with an interval where each secret has a pattern of its own."""
    found = bounded_mean(values)
    return found if own or found is None else replace(found, low=None, high=None)
