"""The table and the summary of `vestige diff`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from vestige.audits.update.evidence import Evidence, NullSearch, Scored
from vestige.audits.update.folding import Folded
from vestige.audits.update.known_secrets import contained_in
from vestige.audits.update.pair import Pair, Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.search import Found
from vestige.audits.update.settings import Settings
from vestige.claims import Check
from vestige.data.vocabulary import Vocabulary
from vestige.results import Result

Row = dict[str, Any]

COLUMNS = (
    "rank", "score", "phrase", "lead", "tokens", "group", "pieces", "token_scores", "copies",
    "kind", "proposal", "place", "found", "e_value", "reached_by",
    "p_value", "p_adjusted", "known_in", "known_part", "generated_in", "coincidence",
)  # fmt: skip


def update_result(
    found: Found,
    *,
    settings: Settings,
    pair: Pair,
    prompts: Sequence[Prompt],
    checks: tuple[Check, ...] = (),
    given: int = 0,
    nulls: Sequence[NullSearch] = (),
    secrets: Sequence[Scored] = (),
    top: int = 50,
) -> Result:
    """Rows of phrases and runs, then of fragments, then of listed secrets; and the claim.

    A row's `found`, E-value and `reached_by` compare its score with null models, those of a secret
    its own scores there; `p_adjusted` is among all listed secrets (Holm). `known_in` is the rank
    with the largest part of a secret. `coincidence` bounds the probability that a secret in
    `generated_in` texts was generated without a leak.
    """
    long = [entry for entry in found.phrases if len(entry[0].phrase) >= settings.min_tokens][:top]
    phrases = [phrase for phrase, _ in long if not phrase.is_run]
    evidence = Evidence(
        phrases=phrases,
        checks=checks,
        units=found.units,
        expected=found.expected,
        given=given,
        nulls=nulls,
        secrets=secrets,
        most_per_token=pair.score.bound - settings.token_penalty,
    )
    places, words = {one.shown_tokens: one.name for one in prompts}, pair.vocabulary
    rows = list(islice(_found_rows(found, long, evidence, places, words), top))
    texts = [phrase.tokens for phrase, _ in long]
    contained = [contained_in(one.listed, texts) for one in secrets]
    for number, part in enumerate(contained):
        rows.append(_secret_row(words, evidence, number, *part, group=1 + len(rows)))
    for rank, row in enumerate(rows, 1):
        row["rank"] = rank
    kinds = [row["kind"] for row in rows]
    best, scores = phrases[0].score if phrases else None, evidence.scores
    above = [bool(evidence.found(phrase.score)) for phrase in phrases]
    summary = {
        **evidence.claim.summary(),
        "search": "seed-and-extend",
        "score": pair.score.name,
        "phrases": len(phrases),
        "runs": kinds.count("run"),
        "fragments": kinds.count("fragment"),
        "found": sum(above) if evidence.decides else None,
        "threshold": evidence.threshold,
        "null_searches": len(nulls),
        "null_weight_changes": [one.change for one in nulls],
        "null_top_score": scores and scores.best,
        "top_score": best,
        "top_e_value": None if best is None else scores and scores.e_value(best),
        "top_reached_by": None if best is None else scores and scores.reached(best),
        "forward_tokens": sum(found.tokens),
        "units_done": found.units,
        "units": found.expected,
        "texts": found.texts,
        "places": [prompt.name for prompt in prompts],
        "complete": evidence.complete,
        "nulls_asked": given,
        "known": len(secrets),
        "known_told": sum(share == 1 for _, share in contained),
        "known_generated": len(evidence.generated),
        "known_beyond": evidence.promoted,
    }
    return Result(kind="UpdateDiff", summary=summary, rows=tuple(rows), claim=evidence.claim)


def _row(words: Vocabulary, text: Text, **values: object) -> Row:
    """A row has all columns; those of another kind of row are empty."""
    tokens = text.phrase
    return {
        **dict.fromkeys(COLUMNS),
        **{"lead": "", "copies": 0, "proposal": ""},
        "score": text.score,
        "phrase": words.decode(tokens),
        "tokens": list(tokens),
        "pieces": [words.piece(token) for token in tokens],
        "token_scores": list(text.gains[text.first - 1 :]),
        **values,
    }


def _found_rows(
    found: Found,
    long: Folded,
    evidence: Evidence,
    places: Mapping[Tokens, str],
    words: Vocabulary,
) -> Iterator[Row]:
    """Phrases and runs, compared with null models; what samples agree on; then whole samples."""
    for entries in (long, found.fragments, found.samples):
        for group, (text, copies) in enumerate(entries):
            row = _row(
                words,
                text,
                kind="run" if text.is_run else "phrase" if entries is long else "fragment",
                lead=words.decode(text.prefix).rpartition("\n")[2] if text.prefix else "",
                group=group,
                copies=copies,
                proposal=text.source,
                place=places.get(text.prompt, "a prompt") if text.prompt else "",
            )
            if entries is long:
                scores = evidence.scores
                row["found"] = evidence.found(text.score)
                row["e_value"] = scores and scores.e_value(text.score)
                row["reached_by"] = scores and scores.reached(text.score)
            if entries is long or not text.is_run:
                yield row


def _secret_row(
    words: Vocabulary,
    evidence: Evidence,
    number: int,
    row: int | None,
    share: float,
    *,
    group: int,
) -> Row:
    """A listed secret; a share of it is in a row of the search, counted from 0."""
    one = evidence.secrets[number]
    others = [null.secrets[number] for null in evidence.nulls]
    return _row(
        words,
        one.text,
        group=group,
        phrase=words.decode(one.text.tokens).strip(),
        kind="known",
        place=one.place,
        reached_by=sum(s >= one.text.score for s in others) if others else None,
        p_value=evidence.p_values[number],
        p_adjusted=evidence.adjusted[number],
        known_in=None if row is None else row + 1,
        known_part=share,
        generated_in=one.texts,
        coincidence=one.proof and one.proof.bound,
    )
