"""`vestige exposure`: canaries by number of copies, the most exposed ones, or own secrets."""

from math import isinf
from typing import TYPE_CHECKING

from vestige.cli.verbs import Output, Verb
from vestige.workflows.exposure import exposure

if TYPE_CHECKING:
    from vestige.attacks.exposure.exposed_canary import ExposedCanary, Group
    from vestige.attacks.exposure.exposure_result import CanaryExposure
    from vestige.attacks.exposure.secret_result import SecretExposure

_MOST = 10  # canaries listed one by one


def _show(found: "CanaryExposure | SecretExposure", output: Output) -> None:
    from vestige.attacks.exposure.exposure_result import CanaryExposure
    from vestige.cli.terminal import say, show_table
    from vestige.reports import secrets

    if not isinstance(found, CanaryExposure):
        cells = secrets.secrets_table(list(found.rows()), show_secrets=output.show_secrets)
        show_table("Secrets", list(secrets.COLUMNS), cells)
        print(found.sentence)
        return
    columns = ["copies", "canaries", "exposure", "95%", "other order", "95%"]
    groups = (*found.by_copies(), found.controls)
    show_table("Exposure in bits (medians)", columns, [_cells(group) for group in groups])
    _show_most_exposed(found, output.show_secrets)
    _say_exact(found)
    print(found.sentence)
    say(found.resolution)


def _cells(group: "Group") -> tuple[object, ...]:
    from vestige.attacks.exposure.exposure_result import written

    return (
        str(group.copies) if group.copies else "never planted",
        group.canaries,
        written(group.exposure),
        _ends(group.exposure.interval if group.exposure else None),
        written(group.shuffled),
        _ends(group.shuffled.interval if group.shuffled else None),
    )


def _ends(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"{low:.1f} or more" if isinf(high) else f"{low:.1f} to {high:.1f}"


def _show_most_exposed(found: "CanaryExposure", show_secrets: bool) -> None:
    from vestige.cli.terminal import show_table
    from vestige.reports.disclosure import disclose

    numbers = {id(canary): number for number, canary in enumerate(found.canaries, 1)}
    planted = [canary for canary in found.canaries if canary.planted]
    most = sorted(planted, key=lambda canary: canary.log_perplexity)
    most = sorted(most, key=lambda canary: -canary.exposure)[:_MOST]
    phrases = disclose([canary.phrase for canary in most], show_secrets=show_secrets)
    columns = {
        "canary": [numbers[id(canary)] for canary in most],
        "phrase": phrases,
        "copies": [canary.copies for canary in most],
        "exposure": [_resolved(canary) for canary in most],
        "95%": [_ends(canary.interval) for canary in most],
        "rank among its orders": [_among_orders(canary) for canary in most],
    }
    if any(canary.extrapolated for canary in most):
        columns["extrapolated"] = [_extrapolated(canary) for canary in most]
    if any(canary.exact_low is not None for canary in most):
        columns["exact"] = [_exact(canary.exact_low, canary.exact_high) for canary in most]
    show_table("The most exposed", list(columns), list(zip(*columns.values(), strict=True)))


def _resolved(canary: "ExposedCanary") -> str:
    low, high = canary.resolved
    return f"{'≥ ' if low < high else ''}{low:.2f}"


def _among_orders(canary: "ExposedCanary") -> str:
    return f"{canary.order_rank:,} of {canary.orders:,}" if canary.orders > 1 else ""


def _extrapolated(canary: "ExposedCanary") -> str:
    """The skew-normal fit beyond the references; it ends where the space does."""
    if not canary.extrapolated or canary.fit_exposure is None:
        return ""
    ended = canary.fit_exposure >= canary.space_bits
    return f"~{canary.fit_exposure:.0f}{' (all there are)' if ended else ''}"


def _say_exact(found: "CanaryExposure") -> None:
    summary = found.summary()
    if summary["exact_asked"]:
        print(
            f"Exact ranks: {summary['exact_decided']} of {summary['exact_asked']} decided; the "
            f"mean lies between {summary['exact_exposure_low']:.1f} and "
            f"{summary['exact_exposure_high']:.1f} bits, both proven."
        )


def _exact(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.1f} to {high:.1f}"


VERB = Verb(exposure, show=_show)
