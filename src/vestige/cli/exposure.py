"""`vestige exposure`: how well does a model know what was planted in its training text?"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options
from vestige.cli.bounds import LARGEST_LIST
from vestige.cli.terminal import progress, say, show_json, show_table

if TYPE_CHECKING:
    from vestige.attacks.exposure.exposed_canary import ExposedCanary, Group
    from vestige.attacks.exposure.exposure_result import CanaryExposure

_MOST = 10  # canaries listed one by one


def command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(help="A model or training directory.", metavar="MODEL", show_default=False),
    ],
    manifest: Annotated[
        Path,
        typer.Option(
            "--manifest", help="A manifest.json, or the DIR of `vestige plant`.", metavar="PATH"
        ),
    ],
    out: options.Out,
    references: Annotated[
        int,
        typer.Option(
            "--references",
            min=1,
            help="Phrases to compare with; a space of no more is taken whole.",
        ),
    ] = 2**14,
    candidates: Annotated[
        Path | None,
        typer.Option(
            "--candidates",
            help="Compare with the lines of this file: all that a template could have said.",
            metavar="FILE",
        ),
    ] = None,
    exact: Annotated[
        int | None,
        typer.Option(
            "--exact",
            min=1,
            help="Find exact ranks, reading at most so many prefixes for each planted canary.",
            metavar="BUDGET",
        ),
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: options.ShowSecrets = False,
) -> None:
    """Say how exposed the canaries of a manifest are by a model.

    Exposure counts bits: a canary of 10 bits is likelier than all but one in 2^10 phrases that
    could have stood in its place. Half of those that were never planted reach 1 bit, by chance.
    Each planted canary is also ranked among the orders of its own words, so that memory of the
    sequence is told from words that are merely frequent, and beside all of them stand the
    controls. Ranks give exact p-values, also of one or a few canaries.

    `--references` resolve no more than log2 of their number: of a canary that is likelier than
    all of them only a bound is known (≥). `--exact` counts on, where the canary is likely enough.

    Examples:

        vestige plant mail.jsonl --text body --out planted --copies 10 --controls 20

        vestige train planted/corpus.jsonl --out trained

        vestige exposure trained --manifest planted --out run

        vestige exposure trained --manifest planted --out run --exact 20000 --json
    """
    from vestige import results
    from vestige.attacks.exposure.canary_exposure import canary_exposure
    from vestige.cli.manifests import load_canaries
    from vestige.cli.provenance import of_model, record
    from vestige.cli.trained import trained_summary, usefulness
    from vestige.models.checkpoints import load_model

    results.require_new(out)
    warning = usefulness(trained_summary(model), who="The model")
    listed = None if candidates is None else _lines(candidates)
    loaded = load_model(model, device=device)
    sealed, canaries = load_canaries(manifest, loaded)
    with progress("scoring") as bar, _naming(*filter(None, (manifest, candidates))):
        found = canary_exposure(
            loaded,
            canaries,
            seed=seed,
            references=references,
            candidates=listed,
            exact_budget=exact,
            progress=bar,
        )
    configuration = {
        "manifest": str(manifest),
        "references": references,
        "candidates": None if candidates is None else str(candidates),
        "exact": exact,
    }
    results.save(
        found,
        out,
        run=record(
            context,
            configuration,
            seed=seed,
            models={"model": of_model(model, loaded)},
            data={"manifest": sealed.sha256, "planted": sealed.planted},
        ),
    )
    if warning is not None:
        say(warning)
    if json:
        show_json(found.summary(), show_secrets=show_secrets)
        return
    _show(found, show_secrets)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


@contextmanager
def _naming(*files: Path) -> Iterator[None]:
    """What cannot be measured is said to stand in these files."""
    from vestige.errors import DataError

    try:
        yield
    except DataError as error:
        names = " with ".join(map(str, files))
        raise DataError(f"{names}: {error.problem}", remedy=error.remedy) from error


def _lines(path: Path) -> list[str]:
    from vestige.data.regular_file import read_bytes
    from vestige.errors import DataError

    remedy = "Give a file with a phrase on each line."
    content = read_bytes(path, limit=LARGEST_LIST, error=DataError, remedy=remedy)
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text: {error.reason}",
            remedy="Write one phrase a line, in UTF-8.",
        ) from error


def _show(found: "CanaryExposure", show_secrets: bool) -> None:
    columns = ["copies", "canaries", "exposure", "95%", "other order", "95%"]
    groups = (*found.by_copies(), found.controls)
    show_table("Exposure in bits (medians)", columns, [_cells(group) for group in groups])
    _show_most_exposed(found, show_secrets)
    _say_exact(found)
    typer.echo(found.verdict)
    say(found.resolution)


def _cells(group: "Group") -> tuple[object, ...]:
    from vestige.attacks.exposure.exposure_words import written

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
    from vestige.reports.components.disclosure import disclose

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
        typer.echo(
            f"Exact ranks: {summary['exact_decided']} of {summary['exact_asked']} decided; the "
            f"mean lies between {summary['exact_exposure_low']:.1f} and "
            f"{summary['exact_exposure_high']:.1f} bits, both proven."
        )


def _exact(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.1f} to {high:.1f}"
