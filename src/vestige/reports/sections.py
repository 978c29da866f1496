"""From a run directory to the plain facts that a page shows, already redacted.

What the template receives holds no secret that the reader did not ask for: redaction happens
here, once, and not in the markup.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from vestige.errors import RunError
from vestige.reports.anatomy.section import anatomy_parts
from vestige.reports.audit.section import audited_parts
from vestige.reports.comparison.section import Comparison, comparison_view
from vestige.reports.completion import completion_parts, completion_points
from vestige.reports.components import charts
from vestige.reports.components.disclosure import (
    IDS,
    SECRET_KEYS,
    SECRET_OPTIONS,
    disclose,
    printable,
    redact,
)
from vestige.reports.components.numbers import whole
from vestige.reports.diff_section import Phrase, diff_parts
from vestige.reports.exposure import exposure_parts, exposure_points, overall
from vestige.reports.extraction.section import (
    Exhibit,
    audit_parts,
    extraction_parts,
    table_figures,
    together,
)
from vestige.reports.limits import limits_of
from vestige.reports.rank import describe_rank
from vestige.reports.training import curve, training_parts
from vestige.results import Run


@dataclass(frozen=True, kw_only=True)
class Section:
    """One run, ready for the template.

    Attributes:
        kind: "diff", "rank" or "table".
        facts: name and value pairs: what was asked, and of what.
        summary: name and value pairs of the result.
        phrases: of a diff, grouped: near neighbours of the best of each group follow it.
        runs: of a diff, runs of one token, which are counted apart.
        fragments: of a diff without a phrase, what a laxer search gives.
        steps: of a rank, one entry a token.
        table: of any other result, columns and rows.
        comparison: of trainings under several defences.
        exhibit: of secrets that were extracted, and of a paper's table: charts and tables.
    """

    kind: str
    title: str
    lede: str
    facts: tuple[tuple[str, str], ...]
    summary: tuple[tuple[str, str], ...]
    phrases: tuple[tuple[Phrase, ...], ...] = ()
    runs: tuple[Phrase, ...] = ()
    fragments: tuple[Phrase, ...] = ()
    steps: tuple[dict[str, str], ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    comparison: Comparison | None = None
    exhibit: Exhibit | None = None
    chart: Markup | None = None
    chart_title: str = ""
    command: str = ""
    limits: tuple[str, ...] = ()


def section(run: Run, *, show_secrets: bool) -> Section:
    """The section of one run.

    Raises:
        RunError: its rows or summary lack what its kind of result has.
    """
    try:
        return KINDS.get(run.result, _table)(run, show_secrets)
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{run.directory} is no whole {printable(run.result)} run ({type(error).__name__})",
            remedy="It was changed or is damaged; repeat the run.",
        ) from error


def _diff(run: Run, show_secrets: bool) -> Section:
    parts = diff_parts(run.rows, run.summary, show_secrets=show_secrets)
    return Section(**parts, **_common(run, show_secrets))


def _rank(run: Run, show_secrets: bool) -> Section:
    labels = disclose([str(row["piece"]) for row in run.rows], show_secrets=show_secrets)
    steps = [
        {
            "piece": label,
            "before": _probability(row["before"]),
            "after": _probability(row["after"]),
            "gain": f"{row['gain']:+.3f}",
            "cumulative": f"{row['cumulative']:+.3f}",
        }
        for row, label in zip(run.rows, labels, strict=True)
    ]
    return Section(
        kind="rank",
        title="How exposed is this phrase?",
        lede=describe_rank(run.summary),
        steps=tuple(steps),
        chart=_chart(charts.profile(run.rows, labels)) if run.rows else None,
        chart_title="Probability of each token once the tokens before it are known: "
        "before the update (ring) and after it (disc)",
        **_common(run, show_secrets),
    )


def _completion(run: Run, show_secrets: bool) -> Section:
    points = completion_points(run.rows, confidence=run.summary["confidence"])
    return Section(
        **completion_parts(run.rows, run.summary),
        chart=_chart(charts.completions(points)) if points else None,
        **_common(run, show_secrets),
    )


def _exposure(run: Run, show_secrets: bool) -> Section:
    points, never = exposure_points(run.rows, run.summary)
    return Section(
        **exposure_parts(run.rows, run.summary),
        chart=_chart(charts.exposures(points, never)),
        **_common(replace(run, summary=overall(run.summary)), show_secrets),
    )


def _comparison(run: Run, show_secrets: bool) -> Section:
    scalars = {
        key: run.summary[key] for key in run.summary if key not in ("advice", "answer", "notes")
    }
    common = _common(replace(run, summary=scalars), show_secrets)
    return Section(
        kind="comparison",
        title="Which defence should I take?",
        lede=printable(run.summary["advice"]),
        comparison=comparison_view(run.rows, run.summary),
        **common,
    )


def _extraction(run: Run, show_secrets: bool) -> Section:
    return Section(
        **extraction_parts(run.rows, run.summary, show_secrets=show_secrets),
        **_common(run, show_secrets),
    )


def _audit(run: Run, show_secrets: bool) -> Section:
    return Section(
        **audit_parts(run.rows, run.summary, show_secrets=show_secrets),
        **_common(replace(run, summary=together(run.summary)), show_secrets),
    )


def _users(run: Run, show_secrets: bool) -> Section:
    parts = audited_parts(run.rows, run.summary, show_secrets=show_secrets)
    return Section(**(_common(run, show_secrets) | parts))


def _anatomy(run: Run, show_secrets: bool) -> Section:
    return Section(**anatomy_parts(run.rows, run.summary), **_common(run, show_secrets))


def _training(run: Run, show_secrets: bool) -> Section:
    terms = run.run.get("privacy") or {}
    lede, warnings, listings = training_parts(run.rows, run.summary, terms)
    drawn = curve(run.rows, run.summary.get("word_frequency_perplexity"))
    caption = (
        "Perplexity on the validation text (disc) and on the training text while it trained "
        "(ring), by steps; the dashed line is what word frequencies alone reach"
    )
    return Section(
        kind="training",
        title="What does this training promise?",
        lede=lede,
        exhibit=Exhibit(
            warnings=warnings,
            figures=((_chart(drawn), caption),) if drawn else (),
            listings=listings,
        ),
        **_common(run, show_secrets),
    )


def _paper_table(run: Run, show_secrets: bool) -> Section:
    """A table of `vestige reproduce`: what it prints, under its title, with its charts."""
    extracted = all("hamming" in row for row in run.rows)  # then a canary is a pattern's name
    names = {"canary": "pattern"} if extracted else {}
    printed = [{names.get(n, n): row.get(n) for n in run.summary["columns"]} for row in run.rows]
    figures = table_figures(run.rows)
    told = {"name": run.summary["name"], "rows": run.summary["rows"]}
    return replace(
        _table(replace(run, rows=printed, summary=told), show_secrets),
        title=printable(run.summary["title"]),
        lede=printable(run.summary["note"]),
        exhibit=Exhibit(figures=figures) if figures else None,
    )


def _table(run: Run, show_secrets: bool) -> Section:
    columns = tuple(dict.fromkeys(key for row in run.rows for key in row))
    rows = [tuple(_shown(key, row.get(key), show_secrets) for key in columns) for row in run.rows]
    return Section(
        kind="table",
        title=printable(run.result),
        lede=f"{len(rows)} rows.",
        table=(tuple(map(printable, columns)), *rows) if rows else (),
        **_common(run, show_secrets),
    )


def _common(run: Run, show_secrets: bool) -> dict[str, Any]:
    return {
        "facts": tuple(_facts(run.run, show_secrets)),
        "summary": tuple((_name(k), _shown(k, v, show_secrets)) for k, v in run.summary.items()),
        "command": _command(run.run.get("command"), show_secrets),
        "limits": limits_of(run.result),
    }


def _facts(run: Mapping[str, Any], show_secrets: bool) -> list[tuple[str, str]]:
    """What was asked and of what, nested mappings flattened to dotted names."""
    facts = []
    for key in ("models", "data", "configuration"):
        for name, value in _flat(run.get(key) or {}):
            facts.append((_name(name), _shown(name.rsplit(".")[-1], value, show_secrets)))
    for key in ("seed", "created"):
        if run.get(key) is not None:
            facts.append((_name(key), _shown(key, run[key], show_secrets)))
    versions = run.get("versions") or {}
    facts.append(("versions", ", ".join(f"{k} {v}" for k, v in versions.items())))
    return [(name, printable(value)) for name, value in facts]


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, item in value.items():
        nested = isinstance(item, Mapping)
        found += _flat(item, f"{prefix}{key}.") if nested else [(f"{prefix}{key}", item)]
    return found


def _shown(key: str, value: Any, show_secrets: bool) -> str:
    if value is None:
        return "–"
    if not show_secrets and key in IDS and not isinstance(value, int):
        return "hidden"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    if isinstance(value, int):
        return whole(value) if key != "seed" else str(value)
    if isinstance(value, list | tuple):
        return ", ".join(_shown(key, item, show_secrets) for item in value) or "–"
    text = printable(str(value))
    return text if show_secrets or key not in SECRET_KEYS else redact(text)


def _command(words: Any, show_secrets: bool) -> str:
    """The command line as one would type it, without the phrase that it may hold."""
    shown, secret = [], False
    for word in map(str, words or ()):
        option, equals, _ = word.partition("=")
        hidden = equals and option in SECRET_OPTIONS
        if show_secrets or not (secret or hidden):
            shown.append(printable(shlex.quote(word)))
        else:
            shown.append(f"{option}=…" if hidden else "…")
        secret = word in SECRET_OPTIONS
    return " ".join(shown)


def _chart(svg: str) -> Markup:
    # vl-convert escapes every text that it draws; tests/reports holds it to that.
    return Markup(svg)


def _probability(value: float) -> str:
    if 0 < value < 1e-4:
        return f"{value:.0e}"
    return f"{value:.4f}"


def _name(key: str) -> str:
    return printable(key.replace("_", " ").replace(".", " · "))


KINDS: dict[str, Callable[[Run, bool], Section]] = {
    "UpdateDiff": _diff,
    "DifferentialRank": _rank,
    "Completion": _completion,
    "DefenceComparison": _comparison,
    "DefendedTraining": _training,
    "CanaryExposure": _exposure,
    "Extraction": _extraction,
    "SecretAudit": _audit,
    "Table": _paper_table,
    "UserAudit": _users,
    "Anatomy": _anatomy,
}
"""How each kind of result is shown; any other is a table."""
