"""Secrets that their owner asked about, among texts of the same shape."""

from collections.abc import Sequence

from vestige.reports.components.charts import QUIET, Chart, Figure, alt
from vestige.reports.components.disclosure import disclose
from vestige.reports.components.facts import pairs
from vestige.reports.components.marks import disc, inline, ring
from vestige.reports.components.numbers import Row
from vestige.reports.components.table import Table
from vestige.reports.section import KINDS, Section
from vestige.results import Run

COLUMNS = ("text", "secret", "kind", "space", "rank", "exposure", "95%", "p, all together", "")
KEY = (
    "Space: bits of what could have stood there. Rank: one more than the texts at least as likely, "
    "of those it was compared with. p: chance of this for secrets never read, of all; of several "
    "pieces that vary, the largest. In part: a piece is known, and not what it stands with."
)
RANK_KEY = (
    "Space: bits of what could have stood there. Rank: one more than the texts of the whole space "
    "that the update made likelier by at least as much; estimated, with 95 % confidence, where not "
    "all were counted. p: chance of this for secrets that the update never read, of all; of "
    "several pieces that vary, the largest. In part: a piece was learnt, not what it stands with."
)
RANK_LIMITS = (
    "Found means that the update promoted it, and not that the model says it.",
    "A secret that the model knew before, and knows as well after, is not found.",
    "What was read once or twice is seldom told from what was never read.",
)
LIMITS = (
    "A secret that was not drawn like the texts that it is compared with, such as a birthday among "
    "codes, may be likelier to a model that never read it. Ask a model that did not, too.",
    "Found means that the model knows it, and not that it says it.",
    "A piece with few alternatives, as an illness among six, cannot be told by itself: what stands "
    "with it may be all that is known.",
    "What was read once or twice is seldom told from what was never read.",
)


@KINDS.register("SecretExposure")
def secrets_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a `SecretExposure`."""
    words = ("Does the model know these secrets?", KEY, LIMITS)
    return _section(run, *words, show_secrets=show_secrets)


@KINDS.register("SecretRank")
def secret_ranks_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a `SecretRank`."""
    words = ("Did the update give these secrets away?", RANK_KEY, RANK_LIMITS)
    return _section(run, *words, show_secrets=show_secrets)


def _section(
    run: Run, title: str, key: str, limits: tuple[str, ...], *, show_secrets: bool
) -> Section:
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
        caption="Exposure of each secret in bits, with its 95 % interval; filled: found.",
        points=len(points),
        slim=True,
    )
    table = Table(
        title="Secrets among texts of the same shape",
        columns=COLUMNS,
        rows=tuple(secrets_table(run.rows, show_secrets=show_secrets)),
        key=key,
    )
    return Section(
        kind="secrets",
        title=title,
        lede=str(run.summary["sentence"]),
        blocks=(figure, table),
        numbers=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=limits,
    )


def secrets_table(rows: Sequence[Row], *, show_secrets: bool) -> list[tuple[str, ...]]:
    """One row a secret, the found ones first, then by exposure; cells as in `COLUMNS`."""
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
            "found" if row["found"] else "in part" if row.get("in_part") else "",
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
    """The found ones first, then by exposure."""
    return sorted(rows, key=lambda row: (row["adjusted_p"], -row["exposure"]))


def exposures(points: Sequence[Row], *, width: int) -> Chart:
    """Exposure of each secret.

    Args:
        points: secret (a label), exposure, low, high, and whether it is found; in their order.
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
