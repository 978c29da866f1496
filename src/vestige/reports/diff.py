"""Phrases that an update promoted, shaded, with their scores; the terminal shows the same words."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from vestige.reports.blocks import Findings, Phrase, phrase
from vestige.reports.charts import Chart, Figure, alt, dashed, disc, inline
from vestige.reports.disclosure import printable
from vestige.reports.numbers import Row
from vestige.reports.report import Block, Report, lines
from vestige.results import Run

LIMITS = (
    "A high score says that AFTER prefers this text more than BEFORE did. It does not prove that "
    "the text was in the training data: models also compose.",
    "The search is a heuristic. It can miss a phrase, and part of a phrase can reveal the rest "
    "(a rank’s profile shows how much).",
    "An E-value counts null phrases. It holds where the null models were made as the update was, "
    "on as much text of the same kind. Text of another kind also changes what is common.",
    "An extrapolated E-value assumes the form of a tail and decides nothing. It errs more "
    "often than it states where null searches are few.",
    "Scores of different searches, scores or token vocabularies are not comparable.",
    "The probability of coincidence of a generated secret supposes that it was sampled uniformly "
    "from the texts of its format. A birthday used as a code was not.",
)
OTHER = "Other samples, not tested"
KNOWN = "Listed secrets"
ASK = "To test a phrase that you know, use vestige rank or vestige exposure."

EXTRAPOLATED = (
    "An extrapolated E-value assumes the form of a tail and decides nothing; it errs more often "
    "than it states where null searches are few."
)


def listed(summary: Row) -> str:
    """How many phrases there are, and how they compare with null models."""
    phrases, nulls = summary["phrases"], summary.get("null_searches") or 0
    if not phrases:
        return _none(summary.get("fragments") or 0)
    number, found = _count(phrases, "phrase"), summary.get("found")
    if not nulls:
        return f"{number}, the most promoted first. Without null models they have no p-value."
    if found:
        return (
            f"{found} of {number} {_are(found)} found: {_count(nulls, 'null search', 'es')} reach "
            "no such score (error rate 5% for the whole list). A phrase found need not have been "
            "in the training text: models also compose."
        )
    return f"{number}, the most promoted first. {_best(summary, nulls)}"


def known(summary: Row) -> str:
    """How many of the listed secrets were generated, and how they compare with null models."""
    number, nulls = int(summary.get("known") or 0), int(summary.get("null_searches") or 0)
    if not number:
        return ""
    of = f"of {_count(number, 'listed secret')}"
    said = summary.get("known_generated") or 0
    told = f"AFTER generates {said} {of} verbatim, and BEFORE does not."
    beyond = summary.get("known_beyond")
    if beyond is not None:
        told += (
            f" {beyond:,} {_are(beyond)} promoted more than by {_count(nulls, 'null model')} "
            "(family-wise error rate 5%)."
        )
    return told


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


def generated(row: Row) -> str:
    """In how many texts a listed secret was generated, and the probability of coincidence."""
    texts, bound = int(row.get("generated_in") or 0), row.get("coincidence")
    if not texts:
        return ""
    chance = "not bounded" if bound is None else f"at most {bound:.1g}"
    return f"generated verbatim in {_count(texts, 'text')}; probability of coincidence {chance}"


def reached(by: int | None, nulls: int) -> str:
    """How many null searches reached a score, for a cell of a table."""
    return "–" if by is None else f"{by} of {nulls}"


def _none(fragments: int) -> str:
    told = f"The search found no promoted phrase. {ASK}"
    if not fragments:
        return told
    return f"{told} {_count(fragments, 'other sample')} {_are(fragments)} listed, not tested."


def _best(summary: Row, nulls: int) -> str:
    """How null searches compare with the best phrase, where none is found."""
    score, by = summary["top_score"], summary["top_reached_by"]
    return f"{by} of {_count(nulls, 'null search', 'es')} reached the best score, {score:.2f}."


def _count(number: int, name: str, plural: str = "s") -> str:
    return f"{number:,} {name}{'' if number == 1 else plural}"


def _list(names: Sequence[str]) -> str:
    """Names with commas and an "and"; of many the first."""
    shown = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else [*names]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def diff_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `UpdateDiff`."""
    rows, summary = run.rows, run.summary
    nulls = summary.get("null_searches") or 0
    strongest = max((s for row in rows for s in row["token_scores"]), default=1.0)

    def of(kind: str) -> list[Phrase]:
        return [_phrase(r, strongest, nulls, show_secrets) for r in rows if r["kind"] == kind]

    return Report(
        kind="diff",
        title="What did this update reveal?",
        evidence=lines(listed(summary), known(summary)),
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
            title=KNOWN,
            key="Each at the position where the update promoted it most: at a document’s "
            "beginning, after a prompt or anywhere. These scores compare with no others.",
            groups=tuple((one,) for one in of("known")),
        ),
        Findings(
            title=OTHER,
            key="Fragments that several samples share, or where there are none, the best of a "
            "laxer search; then whole samples. Null searches have no such scores.",
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
    notes: tuple[str, ...] = (folded, _chance(row), from_)
    if row["kind"] == "known":
        p_value = row.get("p_adjusted")
        alone = "" if p_value is None else f"p-value {p_value:.2g}, adjusted"
        notes = (f"highest: {source(row)}", told_in(row), alone, generated(row))
    return phrase(
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
