"""What rows give away, judged by what was in the update."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reproduction.updates.reconstruction import Gram, is_verbatim, ngrams, tokens_found
from update_pairs.protocol import Row
from vestige.audits.update.nulls import NEEDED, NullScores
from vestige.data.vocabulary import Vocabulary

TOPS = (10, 50, None)
"""Rows that a reader looks at: the first so many, or all."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What a pair's update was.

    Attributes:
        secrets: ids of each, with its copies.
        added: four-grams of the update that the earlier text does not have.
    """

    secrets: Mapping[tuple[int, ...], int]
    added: frozenset[Gram]


def truth(pair: Path, vocabulary: Vocabulary) -> Truth:
    """The truth of a made pair."""
    facts = json.loads((pair / "facts.json").read_text("utf-8"))
    space = " " if facts["kind"] == "chat" else ""  # they stand inside a turn there
    secrets = {
        tuple(vocabulary.encode_batch([space + text])[0]): copies
        for text, copies in facts["secrets"].items()
    }
    had, has = (_four_grams(pair / facts[name], vocabulary) for name in ("earlier", "update"))
    return Truth(secrets=secrets, added=frozenset(has - had))


def recalled(rows: Sequence[Row], known: Truth, copies: int) -> tuple[int, int]:
    """(tokens of the secrets with so many copies that rows hold in runs of three, tokens)."""
    texts = [row.tokens for row in rows]
    secrets = [secret for secret, number in known.secrets.items() if number == copies]
    return sum(tokens_found(one, texts) for one in secrets), sum(map(len, secrets))


def coverage(rows: Iterable[Row], known: Truth) -> tuple[int, int]:
    """(distinct four-grams of rows that only the update has, distinct four-grams of rows)."""
    grams = {gram for row in rows for gram in ngrams(row.tokens, 4)}
    return len(grams & known.added), len(grams)


def verbatim(rows: Sequence[Row], known: Truth) -> int:
    """Rows of which at least half of the four-grams only the update has."""
    added = set(known.added)
    return sum(is_verbatim(row.tokens, added) for row in rows)


def found(rows: Sequence[Row], nulls: Sequence[Sequence[float]]) -> list[Row]:
    """The rows that null searches hardly reach, E at most .05; none with too few to say."""
    if len(nulls) < NEEDED:
        return []
    scores = NullScores.of(nulls)
    return [row for row in rows if not row.fragment and scores.found(row.score)]


def above(rows: Sequence[Row], nulls: Sequence[Sequence[float]]) -> list[Row]:
    """The rows that no null search reaches, however few there are."""
    best = max((score for scores in nulls for score in scores), default=float("-inf"))
    return [row for row in rows if not row.fragment and row.score > best]


def judged(
    rows: Sequence[Row],
    known: Truth,
    nulls: Sequence[Sequence[float]],
    alike: Sequence[Sequence[float]] = (),
) -> dict[str, int | None]:
    """Every measure of one search, as counts: shares are made over many of them.

    Args:
        rows: of the search.
        known: what the update was.
        nulls: scores of all null searches; `found` is None with fewer than it takes to call
            anything found.
        alike: scores of the null searches of the same kind of pair; `above` is None without.
    """
    counts: dict[str, int | None] = {}
    for copies in sorted(set(known.secrets.values()), reverse=True):
        for top in TOPS:
            hit, whole = recalled(rows[:top], known, copies)
            counts[f"recall_x{copies}_{top or 'all'}"] = hit
            counts[f"secret_tokens_x{copies}"] = whole
    counts["added_grams"], counts["grams"] = coverage(rows, known)
    counts["added_grams_50"], counts["grams_50"] = coverage(rows[:50], known)
    counts["rows"], counts["rows_50"] = len(rows), len(rows[:50])
    counts["verbatim_50"] = verbatim(rows[:50], known)
    phrases = [row for row in rows[:50] if not row.fragment]
    counts["phrases_50"], counts["phrases_verbatim_50"] = len(phrases), verbatim(phrases, known)
    surer = found(rows, nulls)
    able = len(nulls) >= NEEDED
    counts["found"] = len(surer) if able else None
    counts["found_verbatim"] = verbatim(surer, known) if able else None
    higher = above(rows, alike)
    counts["above"] = len(higher) if alike else None
    counts["above_verbatim"] = verbatim(higher, known) if alike else None
    return counts


def false_alarm(rows: Sequence[Row], others: Sequence[Sequence[float]]) -> bool | None:
    """Whether a null search has a row that it would report as found; None with too few others."""
    return bool(found(rows, others)) if len(others) >= NEEDED else None


def _four_grams(file: Path, vocabulary: Vocabulary) -> set[Gram]:
    texts = json.loads(file.read_text("utf-8"))
    return {gram for ids in vocabulary.encode_batch(texts) for gram in ngrams(ids, 4)}
