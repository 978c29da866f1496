"""Phrases that an update promoted: verdict, shaded phrases and their scores.

The terminal shows the same words.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from vestige.reports.components import findings
from vestige.reports.components.charts import Chart, Figure, alt
from vestige.reports.components.disclosure import printable
from vestige.reports.components.findings import Findings, Phrase
from vestige.reports.components.marks import dashed, disc, inline
from vestige.reports.components.numbers import Row
from vestige.reports.section import KINDS, Block, Section
from vestige.results import Run

LIMITS = (
    "A high score says that the second model prefers this text more than the first did. It "
    "does not prove that the text stood in the training data: models also compose.",
    "A phrase that is missing here is not thereby safe. The search is a heuristic, and "
    "knowing part of a phrase can reveal the rest (a rank’s profile shows how much).",
    "An E-value counts null searches: what it states holds where the null models were made as "
    "the update was, on as much text of the same kind. Text of another kind also changes what "
    "is common.",
    "An extrapolated E-value assumes the shape of a tail and decides nothing. It errs more "
    "often than it states where null searches are few.",
    "Scores of different searches, scores or token vocabularies are not comparable.",
    "A phrase that was asked for has a p-value of its own, whatever the search found. Of many that "
    "did not leak, the share p has one as low.",
)
PROVES_NOTHING = (
    "That proves nothing: the search is a heuristic. vestige rank and vestige exposure ask for a "
    "phrase that you know."
)

EXTRAPOLATED = (
    "An extrapolated E-value assumes the shape of a tail and decides nothing; it errs more often "
    "than it states where null searches are few."
)


def verdict(summary: Row) -> str:
    """How many phrases, what null searches say of them, and what that leaves open."""
    phrases, nulls = summary["phrases"], summary.get("null_searches") or 0
    if not phrases:
        return _none(summary.get("fragments") or 0)
    number = _count(phrases, "phrase")
    found, most = summary.get("found"), f"{number} that the update promoted most"
    if not nulls and found is not None:
        return (
            f"{most}, compared with one null model by a rule that errs more often than it states. "
            "Repeat the run."
        )
    if not nulls:
        return (
            f"{most}. No null model was given, so nothing says which of these scores chance could "
            "reach."
        )
    if found is None:
        return f"{most}. {_best(summary, nulls)}"
    if not found:
        return f"0 of {number} {_are(0)} found. {_best(summary, nulls)} {PROVES_NOTHING}"
    return (
        f"{found} of {number} {_are(found)} found: by {_count(nulls, 'null search', 'es')}, a "
        "clean update has any such phrase at most once in 20 times. What is found need not have "
        "stood in its text: models also compose."
    )


def known_verdict(summary: Row) -> str:
    """How many of the phrases that were asked for are told, and what that leaves open."""
    known, nulls = int(summary.get("known") or 0), int(summary.get("null_searches") or 0)
    if not known:
        return ""
    told = summary.get("known_told") or 0
    asked = f"{_count(told, 'phrase')} of the {known:,} asked for {_are(told)} told whole"
    if not nulls:
        return (
            f"{asked} by the search. Without null models nothing says how high such phrases score "
            "where they did not leak; vestige exposure compares canaries with controls."
        )
    beyond, least = summary.get("known_beyond") or 0, 1 / (1 + nulls)
    return (
        f"{asked} by the search; {beyond:,} {_are(beyond)} promoted more than by "
        f"{'the null model' if nulls == 1 else f'any of {nulls} null models'} (p = {least:.2g}). "
        f"Of {known:,} that did not leak, "
        f"{known * least:.2g} would be by chance."
    )


def searched(summary: Row) -> str:
    """What was read, behind what, and whether that was all."""
    tokens = summary.get("forward_tokens")
    if tokens is None:
        return ""
    texts = {name: count for name, count in (summary.get("texts") or {}).items() if count}
    kinds = ", ".join(f"{count:,} from {printable(name)}" for name, count in texts.items())
    places = [printable(str(place)) for place in summary.get("places") or ()]
    behind = f", behind {_list(places)}" if places else ""
    told = f"Searched: {tokens:,} forward tokens; {_count(sum(texts.values()), 'text')}"
    told += f" ({kinds}){behind}." if kinds else f"{behind}."
    if summary.get("complete") is not False:
        return told
    done, units = summary.get("units_done"), summary.get("units")
    nulls, asked = summary.get("null_searches") or 0, summary.get("nulls_asked") or 0
    left = f"{done} of {units} units of work" if done != units else ""
    also = f"{nulls} of {_count(asked, 'null search', 'es')}" if nulls < asked else ""
    return (
        f"{told} This is a part: {' and '.join(filter(None, (left, also)))} done when the time was "
        "over. The same command goes on."
    )


def source(row: Row) -> str:
    """By which proposal a phrase was found, and behind which prompt."""
    proposal, place = str(row.get("proposal") or ""), str(row.get("place") or "")
    return printable(f"{proposal}, {place}" if proposal and place else proposal or place)


def told_in(row: Row) -> str:
    """The row of the search that tells a phrase, or most of it."""
    found, part = row.get("known_in"), float(row.get("known_part") or 0)
    if found is None:
        return "not found by the search"
    return f"rank {found}" if part == 1 else f"{part:.0%} of it in rank {found}"


def reached(by: int | None, nulls: int) -> str:
    """How many null searches reached a score, for a cell of a table."""
    return "–" if by is None else f"{by} of {nulls}"


def _none(fragments: int) -> str:
    told = "0 phrases: the search found none that the update promoted."
    if not fragments:
        return f"{told} {PROVES_NOTHING}"
    listed = f"{_count(fragments, 'fragment')} {_are(fragments)} listed"
    return f"{told} {listed}, which cannot be told from chance. {PROVES_NOTHING}"


def _best(summary: Row, nulls: int) -> str:
    """What null searches say of the best phrase, where none can be called found."""
    score, by = summary["top_score"], summary["top_reached_by"]
    searches = _count(nulls, "null search", "es")
    if by:
        return (
            f"{by} of {searches} reached the best score, {score:.2f}: nothing here can be told "
            "from chance."
        )
    alone = f"No null search of {nulls} reached the best score, {score:.2f}; chance alone "
    alone += f"comes out so 1 time in {nulls + 1}."
    return f"{alone} It takes 19 null models to call a phrase found."


def _count(number: int, name: str, plural: str = "s") -> str:
    return f"{number:,} {name}{'' if number == 1 else plural}"


def _list(names: Sequence[str]) -> str:
    """Names with commas and an "and"; of many the first."""
    shown = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else [*names]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


@KINDS.register("UpdateDiff")
def diff_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of an `UpdateDiff`."""
    rows, summary = run.rows, run.summary
    nulls = summary.get("null_searches") or 0
    strongest = max((s for row in rows for s in row["token_scores"]), default=1.0)

    def of(kind: str) -> list[Phrase]:
        return [_phrase(r, strongest, nulls, show_secrets) for r in rows if r["kind"] == kind]

    return Section(
        kind="diff",
        title="What did this update reveal?",
        lede=verdict(summary),
        because=known_verdict(summary),
        notices=tuple(filter(None, (searched(summary),))),
        blocks=(*_lists(rows, of, show_secrets), *_figures(rows, summary)),
        limits=LIMITS,
    )


def _lists(rows: Sequence[Row], of: Any, show_secrets: bool) -> list[Block]:
    """Phrases, fragments and runs of one token, those that there are."""
    runs = of("run")
    shading = "Shading is each token’s own score"
    if not show_secrets:
        shading += "; each block is a token that is withheld, whatever its length"
    found = [
        Findings(
            title="Phrases",
            key=f"{shading}; what was read before a phrase stands grey. Rank 0 is the first.",
            groups=_grouped(of("phrase"), {r["rank"]: r.get("group") for r in rows}),
        ),
        Findings(
            title="Phrases that were asked for",
            key="Each at the place where the update promoted it most: at a document’s beginning, "
            "behind a prompt or anywhere. Scores here pay no toll and compare with no others.",
            groups=tuple((one,) for one in of("known")),
        ),
        Findings(
            title="Fragments, not distinguishable from chance",
            key="What several samples agree on beside the phrases, or where there is neither, the "
            "best of a laxer search; then whole samples. Null searches have no such scores.",
            groups=tuple((one,) for one in of("fragment")),
        ),
        Findings(
            title=f"{_count(len(runs), 'run')} of one token, counted apart",
            key="Models promote loops readily; a loop of one token is seldom a secret.",
            groups=tuple((one,) for one in runs),
            folded=True,
        ),
    ]
    return [one for one in found if one.groups]


def _figures(rows: Sequence[Row], summary: Row) -> list[Block]:
    scores = [float(row["score"]) for row in rows if row["kind"] == "phrase"]
    if not scores:
        return []
    threshold = summary.get("threshold")
    line = summary.get("null_top_score") if threshold is None else threshold
    what = "the best of the null searches" if threshold is None else "the threshold"
    drawn = "" if line is None else f"; the dashed line is {what}, {line:.2f}"
    figure = Figure(
        draw=lambda width: chart_of_scores(scores, line, width=width),
        caption=f"Score of each phrase{drawn}.",
        points=len(scores),
        slim=True,
    )
    return [figure]


def chart_of_scores(scores: Sequence[float], threshold: float | None, *, width: int) -> Chart:
    """Score of every phrase by its rank, with the null searches' threshold where there is one."""
    values = [{"place": place, "score": score} for place, score in enumerate(scores, start=1)]
    x = alt.X("place:Q", title="phrase, best first", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("score:Q", title="score")
    layers = [disc(inline(values), 28).encode(x=x, y=y)]
    if threshold is not None:
        layers.append(dashed(score=threshold).encode(y=y))
    return alt.layer(*layers).properties(width=width, height=190)


def _phrase(row: Row, strongest: float, nulls: int, show_secrets: bool) -> Phrase:
    by, copies = row.get("reached_by"), int(row.get("copies") or 0)
    searches = "" if by is None else f"{reached(by, nulls)} null{'' if nulls == 1 else 's'}"
    folded = f"{copies} near-cop{'y' if copies == 1 else 'ies'} folded in" if copies else ""
    from_ = f"found by {source(row)}" if source(row) else ""
    notes = (folded, _chance(row), from_)
    if row["kind"] == "known":
        p_value = row.get("p_value")
        alone = "" if p_value is None else f"p-value {p_value:.2g}"
        notes = (f"highest: {source(row)}", told_in(row), alone)
    return findings.phrase(
        row,
        strongest=strongest,
        verdict="found" if row.get("found") else searches,
        notes=tuple(filter(None, notes)),
        show_secrets=show_secrets,
    )


def _chance(row: Row) -> str:
    counted, beyond = row.get("e_value"), row.get("extrapolated_e_value")
    more = "" if beyond is None else f", {beyond:.1g} extrapolated"
    return "" if counted is None else f"E-value {counted:.2g}{more}"


def _grouped(phrases: Sequence[Phrase], group: Mapping[int, Any]) -> tuple[tuple[Phrase, ...], ...]:
    """Phrases of one group together, groups in the order of their best phrase."""
    first = {group[phrase.rank]: phrase.rank for phrase in reversed(phrases)}
    ordered = sorted(phrases, key=lambda phrase: (first[group[phrase.rank]], phrase.rank))
    return tuple(tuple(found) for _, found in groupby(ordered, key=lambda p: group[p.rank]))
