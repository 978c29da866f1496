"""Tables of the methods, with intervals over the texts.

Pairs of one text share the model before and the secrets, so that the unit of an interval is the
text: a share is a ratio of two sums over texts, its margin by Student's t.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from update_pairs.measures import TOPS, Truth, false_alarm, judged, truth
from update_pairs.searches import Kept
from update_pairs.texts import COPIES
from vestige.metrics.estimates import ratio_of_sums
from vestige.models.checkpoints import load_model

Record = dict[str, Any]


def records(kept: Kept, methods: Iterable[str], *, seed: int = 0) -> list[Record]:
    """Every measure of every update that was searched, one record a method and pair.

    Rows are found by the null searches of the same method and seed, of all pairs that have one.
    """
    names, made = kept.names(), list[Record]()
    truths: dict[str, Truth] = {}
    for method in methods:
        nulls = null_scores(kept, method, seed)
        for name in names:
            found = kept.found(method, name, "after", seed)
            if found is None:
                continue
            if name not in truths:
                vocabulary = load_model(kept.pairs / name / "before").vocabulary
                truths[name] = truth(kept.pairs / name, vocabulary)
            text, kind = name.rsplit("-", 1)
            alike = [scores for null, scores in nulls.items() if null.endswith(f"-{kind}")]
            made.append(
                {
                    "method": method,
                    "text": text,
                    "kind": kind,
                    "forward_tokens": found.before + found.after,
                    "nulls": len(nulls),
                    **judged(found.rows, truths[name], list(nulls.values()), alike),
                }
            )
    return made


def null_scores(kept: Kept, method: str, seed: int) -> dict[str, tuple[float, ...]]:
    """Scores of the null searches that were run, by their pairs."""
    searched = {name: kept.found(method, name, "null", seed) for name in kept.names()}
    return {name: found.null_scores for name, found in searched.items() if found is not None}


def alarms(kept: Kept, method: str, seeds: Iterable[int]) -> list[Record]:
    """Of each null search, whether it reports anything as found against those of the other pairs.

    Of n searches against each other exactly one has the highest phrase, so that one in n does,
    whatever the method, where all were drawn alike; where it is always the same kind or text, they
    were not.
    """
    made = list[Record]()
    for seed in seeds:
        nulls = null_scores(kept, method, seed)
        for name in nulls:
            found = kept.found(method, name, "null", seed)
            assert found is not None
            others = [scores for other, scores in nulls.items() if other != name]
            text, kind = name.rsplit("-", 1)
            made.append(
                {
                    "method": method,
                    "seed": seed,
                    "text": text,
                    "kind": kind,
                    "nulls": len(others),
                    "rows": len(found.rows),
                    "top_score": max(found.null_scores, default=None),
                    "alarm": false_alarm(found.rows, others),
                }
            )
    return made


def share(records: Sequence[Record], part: str, whole: str) -> str:
    """A share of sums with its interval over texts; a dash where there is nothing to share.

    Texts that do not differ have no interval: so few say nothing about how far others would.
    """
    told = [one for one in records if one[part] is not None and one[whole] is not None]
    parts, wholes = _by_text(told, part), _by_text(told, whole)
    if not sum(wholes):
        return "–"
    found = ratio_of_sums(parts, wholes)
    if found.low is None or found.high - found.low < 1e-9:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({max(0.0, found.low):.2f}–{min(1.0, found.high):.2f})"


def methods_table(records: Sequence[Record]) -> list[list[str]]:
    """A row a method, over all its pairs."""
    head = ["method", "pairs", *(f"×{n}, {_top(top)}" for n in COPIES[:2] for top in TOPS)]
    head += [
        "×1, all",
        "verbatim, first 50",
        "without fragments",
        "added 4-grams a pair, first 50",
        "precision of 4-grams, first 50",
        "added 4-grams, all",
        "precision, all",
    ]
    head += ["forward tokens"]
    rows = [head]
    for method, mine in _grouped(records, "method"):
        rows.append(
            [
                method,
                str(len(mine)),
                *(_recall(mine, n, top) for n in COPIES[:2] for top in TOPS),
                _recall(mine, COPIES[2], None),
                share(mine, "verbatim_50", "rows_50"),
                share(mine, "phrases_verbatim_50", "phrases_50"),
                _mean(mine, "added_grams_50"),
                share(mine, "added_grams_50", "grams_50"),
                _mean(mine, "added_grams"),
                share(mine, "added_grams", "grams"),
                _mean(mine, "forward_tokens"),
            ]
        )
    return rows


def kinds_table(records: Sequence[Record], top: int | None = 50) -> list[list[str]]:
    """A row a method and kind of pair: recall by copies in the first rows."""
    rows = [["method", "kind", "pairs", *(f"×{n}" for n in COPIES), "verbatim", "4-grams"]]
    for method, mine in _grouped(records, "method"):
        for kind, own in _grouped(mine, "kind"):
            told = [_recall(own, n, top) for n in COPIES]
            verbatim, grams = share(own, "verbatim_50", "rows_50"), _mean(own, "added_grams_50")
            rows.append([method, kind, str(len(own)), *told, verbatim, grams])
    return rows


def found_table(records: Sequence[Record]) -> list[list[str]]:
    """A row a method and kind: rows found, and rows above the null searches of their kind."""
    rows = [["method", "kind", "found, verbatim", "above the nulls of their kind, verbatim"]]
    for method, mine in _grouped(records, "method"):
        for kind, own in [*_grouped(mine, "kind"), ("all", mine)]:
            rows.append([method, kind, _part(own, "found"), _part(own, "above")])
    return [row for row in rows if row[2:] != ["–", "–"]]


def duels_table(records: Sequence[Record], ours: str = "hybrid") -> list[list[str]]:
    """On how many pairs our recall of all secrets' tokens in the first 50 rows is as high, and by
    how much it is higher on average, in the first 10 and the first 50."""
    head = ["against", "pairs", "at least as high", "higher"]
    rows = [[*head, "difference, first 10", "difference, first 50"]]
    mine = {(one["text"], one["kind"]): one for one in records if one["method"] == ours}
    for method, theirs in _grouped(records, "method"):
        both = [
            (mine[one["text"], one["kind"]], one)
            for one in theirs
            if (one["text"], one["kind"]) in mine
        ]
        if method != ours and both:
            level = sum(_hits(own, 50) >= _hits(other, 50) for own, other in both)
            above = sum(_hits(own, 50) > _hits(other, 50) for own, other in both)
            told = [_difference(both, top) for top in (10, 50)]
            rows.append([method, str(len(both)), str(level), str(above), *told])
    return rows


def _difference(both: Sequence[tuple[Record, Record]], top: int) -> str:
    """Our recall less theirs on the same pairs, with its interval over texts."""
    made = [
        {
            "text": own["text"],
            "hits": _hits(own, top) - _hits(other, top),
            "tokens": sum(own[f"secret_tokens_x{copies}"] for copies in COPIES),
        }
        for own, other in both
    ]
    found = ratio_of_sums(_by_text(made, "hits"), _by_text(made, "tokens"))
    if found.low is None:
        return f"{found.value:+.2f}"
    return f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def alarms_table(records: Sequence[Record]) -> list[list[str]]:
    """A row a method and kind: null searches with anything found against the others."""
    rows = [["method", "kind", "null searches", "with anything found"]]
    for method, mine in _grouped(records, "method"):
        for kind, own in [*_grouped(mine, "kind"), ("all", mine)]:
            told = [one["alarm"] for one in own if one["alarm"] is not None]
            found = str(sum(told)) if told else f"– ({min(one['nulls'] for one in own)} nulls)"
            rows.append([method, kind, str(len(own)), found])
    return rows


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]])


def write_csv(records: Sequence[Record], file: Path) -> None:
    """All records, a line each."""
    if not records:
        return
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(records[0]))
        writer.writeheader()
        writer.writerows(records)


def _top(top: int | None) -> str:
    return "all" if top is None else f"first {top}"


def _recall(records: Sequence[Record], copies: int, top: int | None) -> str:
    return share(records, f"recall_x{copies}_{top or 'all'}", f"secret_tokens_x{copies}")


def _hits(record: Record, top: int) -> int:
    return sum(record[f"recall_x{copies}_{top}"] for copies in COPIES)


def _mean(records: Sequence[Record], name: str) -> str:
    told = [one[name] for one in records if one[name] is not None]
    return f"{sum(told) / len(told):,.1f}" if told else "–"


def _part(records: Sequence[Record], name: str) -> str:
    """How many rows of a sort are verbatim."""
    told = [(one[f"{name}_verbatim"], one[name]) for one in records if one[name] is not None]
    return f"{sum(part for part, _ in told)} of {sum(rows for _, rows in told)}" if told else "–"


def _by_text(records: Sequence[Record], name: str) -> list[int]:
    return [sum(one[name] for one in own) for _, own in _grouped(records, "text")]


def _grouped(records: Sequence[Record], name: str) -> list[tuple[str, list[Record]]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record[name], []).append(record)
    return list(groups.items())
