"""Secrets that were never planted, among texts of their format."""

from collections.abc import Sequence

from vestige.reports.charts import QUIET, Chart, Figure, alt, disc, inline, ring
from vestige.reports.disclosure import disclose
from vestige.reports.numbers import Row
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.reports.words import pairs
from vestige.results import Run

COLUMNS = ("text", "secret", "kind", "space", "rank", "exposure", "95%", "p, all together", "")
KEY = (
    "Space: bits of the texts of its format. Rank: 1 + the texts at least as probable, of those it "
    "was compared with. p: corrected for all secrets; the largest of its tests. Known: more "
    "probable than texts of its format. In part: a piece is known, such as a name, perhaps from "
    "elsewhere."
)
RANK_KEY = (
    "Space: bits of the texts of its format. Rank: 1 + the texts of the whole space that the "
    "update promoted at least as much; estimated, with 95% confidence, where not all were "
    "counted. p: "
    "corrected for all secrets; the largest of its tests. Known: promoted more than texts of its "
    "format. In part: a piece was promoted, such as a name, perhaps from elsewhere."
)
RANK_LIMITS = (
    "Promoted by the update does not mean that the model generates it.",
    "A secret that the model knew before as well as after is not promoted.",
    "A secret that was read once or twice can go unnoticed.",
)
LIMITS = (
    "P-values are exact for secrets drawn uniformly from their format. One that was chosen, such "
    "as a birthday as a code, can be more probable to a model that never read it: audit the model "
    "from before the training as well, or use `vestige rank`.",
    "Pieces that the model knows from elsewhere are those that it generates: a rare one may be "
    "missing.",
    "Known does not mean that the model generates it.",
    "A secret that was read once or twice can go unnoticed.",
)


def secrets_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretExposure`."""
    words = ("Does the model know these secrets?", KEY, LIMITS)
    return _report(run, *words, show_secrets=show_secrets)


def secret_ranks_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretRank`."""
    words = ("Did the update reveal these secrets?", RANK_KEY, RANK_LIMITS)
    return _report(run, *words, show_secrets=show_secrets)


def _report(
    run: Run, title: str, key: str, limits: tuple[str, ...], *, show_secrets: bool
) -> Report:
    points = [
        {
            "secret": str(row["secret_number"]),
            "exposure": _shown(row),
            "low": row["low"],
            "high": row["high"],
            "found": bool(row["found"]),
        }
        for row in ordered(run.rows)
    ]
    figure = Figure(
        draw=lambda width: exposures(points, width=width),
        caption="Exposure of each secret in bits, with its 95% interval; filled: known.",
        points=len(points),
        slim=True,
    )
    table = Table(
        title="Secrets among texts of their format",
        columns=COLUMNS,
        rows=tuple(secrets_table(run.rows, show_secrets=show_secrets)),
        key=key,
    )
    return Report(
        kind="secrets",
        title=title,
        evidence=lines(str(run.summary["sentence"])),
        blocks=(figure, table),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=limits,
    )


def secrets_table(rows: Sequence[Row], *, show_secrets: bool) -> list[tuple[str, ...]]:
    """One row a secret, the known ones first, then by exposure; cells as in `COLUMNS`."""
    rows = ordered(rows)
    texts = disclose([row["phrase"] for row in rows], show_secrets=show_secrets)
    return [
        (
            text,
            str(row["secret_number"]),
            str(row["kind"]),
            f"{row['space_bits']:.1f}",
            _rank(row),
            f"{'≥ ' if row['at_ceiling'] and not row['whole'] else ''}{_shown(row):.1f}",
            f"{row['low']:.1f} to {row['high']:.1f}",
            f"{row['adjusted_p']:.2g}",
            "known" if row["found"] else "in part" if row.get("in_part") else "",
        )
        for row, text in zip(rows, texts, strict=True)
    ]


def _rank(row: Row) -> str:
    """Among the texts it was compared with; of a `SecretRank`, in the whole space."""
    among = f"{row['rank']:,} of {row['references'] + 1:,}"
    if row["whole"] or row.get("log2_space_rank") is None:
        return among
    middle, low, high = (_power(row[f"log2_space_rank{end}"]) for end in ("", "_low", "_high"))
    space = _power(row["space_bits"])
    if row["at_ceiling"]:
        return f"at most {high} of {space}"
    return f"about {middle} ({low} to {high}) of {space}"


def _power(bits: float) -> str:
    """2 to the number of bits, written out where it is short."""
    return f"{round(2**bits):,}" if bits < 20 else f"2^{bits:.1f}"


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The known ones first, then by exposure."""
    return sorted(rows, key=lambda row: (row["adjusted_p"], -row["exposure"]))


def exposures(points: Sequence[Row], *, width: int) -> Chart:
    """Exposure of each secret.

    Args:
        points: secret (a label), exposure, low, high, and whether it is known; in their order.
    """
    y = alt.Y("secret:N", sort=None, title="secret")
    x = alt.X("low:Q", title="exposure in bits", scale=alt.Scale(zero=True))
    chart = inline(points)
    found, others = (chart.transform_filter(alt.datum.found == one) for one in (True, False))
    return alt.layer(
        chart.mark_rule(stroke=QUIET, strokeWidth=2).encode(x=x, x2="high:Q", y=y),
        disc(found, 70).encode(x="exposure:Q", y=y),
        ring(others, 70).encode(x="exposure:Q", y=y),
    ).properties(width=width, height=alt.Step(18))


def _shown(row: Row) -> float:
    """At the ceiling of a sample, what it proves."""
    ceiling = row["at_ceiling"] and not row["whole"]
    return float(row["low"] if ceiling else row["exposure"])
