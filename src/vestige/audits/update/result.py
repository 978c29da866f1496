"""The table and the summary of `vestige diff`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from vestige.audits.update.evidence import Evidence, NullSearch, SecretEvidence
from vestige.audits.update.folding import Folded
from vestige.audits.update.listed_secrets import contained_in
from vestige.audits.update.pair import Pair, Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.search import SearchResult
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
    searched: SearchResult,
    *,
    settings: Settings,
    pair: Pair,
    prompts: Sequence[Prompt],
    checks: tuple[Check, ...] = (),
    nulls_requested: int = 0,
    nulls: Sequence[NullSearch] = (),
    secrets: Sequence[SecretEvidence] = (),
    top: int = 50,
) -> Result:
    """Rows of phrases and runs, then of fragments, then of listed secrets; and the claim.

    A row's `found`, E-value and `reached_by` compare its score with null models, those of a secret
    with its own scores there; `p_adjusted` is among all listed secrets (Holm). `known_in` is the
    rank of the row with the largest part of a secret. `coincidence` bounds the probability that a
    secret in `generated_in` texts was generated without a leak.
    """
    long = [entry for entry in searched.phrases if len(entry[0].phrase) >= settings.min_tokens]
    long = long[:top]
    phrases = [phrase for phrase, _ in long if not phrase.is_repetitive]
    evidence = Evidence(
        phrases=phrases,
        checks=checks,
        units=searched.units,
        expected=searched.expected,
        nulls_requested=nulls_requested,
        nulls=nulls,
        secrets=secrets,
        most_per_token=pair.score.bound - settings.token_penalty,
    )
    vocabulary = pair.vocabulary
    names = {prompt.shown_tokens: prompt.name for prompt in prompts}
    rows = list(islice(_search_rows(searched, long, evidence, names, vocabulary), top))
    texts = [phrase.tokens for phrase, _ in long]
    contained = [contained_in(secret.secret, texts) for secret in secrets]
    for index, (row_index, share) in enumerate(contained):
        rows.append(_secret_row(vocabulary, evidence, index, row_index, share, group=1 + len(rows)))
    for rank, row in enumerate(rows, 1):
        row["rank"] = rank
    kinds = [row["kind"] for row in rows]
    best, scores = phrases[0].score if phrases else None, evidence.scores
    found = [bool(evidence.found(phrase.score)) for phrase in phrases]
    summary = {
        **evidence.claim.summary(),
        "search": "seed-and-extend",
        "score": pair.score.name,
        "phrases": len(phrases),
        "runs": kinds.count("run"),
        "fragments": kinds.count("fragment"),
        "found": sum(found) if evidence.decides else None,
        "threshold": evidence.threshold,
        "null_searches": len(nulls),
        "null_weight_changes": [null.change for null in nulls],
        "null_top_score": scores and scores.best,
        "top_score": best,
        "top_e_value": None if best is None else scores and scores.e_value(best),
        "top_reached_by": None if best is None else scores and scores.reached(best),
        "forward_tokens": sum(searched.tokens),
        "units_done": searched.units,
        "units": searched.expected,
        "texts": searched.texts,
        "places": [prompt.name for prompt in prompts],
        "complete": evidence.complete,
        "nulls_asked": nulls_requested,
        "known": len(secrets),
        "known_told": sum(share == 1 for _, share in contained),
        "known_generated": len(evidence.generated),
        "known_beyond": evidence.promoted,
    }
    return Result(kind="UpdateDiff", summary=summary, rows=tuple(rows), claim=evidence.claim)


def _row(vocabulary: Vocabulary, text: Text, **values: object) -> Row:
    """A row with all columns; those of other kinds of rows are empty."""
    tokens = text.phrase
    return {
        **dict.fromkeys(COLUMNS),
        **{"lead": "", "copies": 0, "proposal": ""},
        "score": text.score,
        "phrase": vocabulary.decode(tokens),
        "tokens": list(tokens),
        "pieces": [vocabulary.piece(token) for token in tokens],
        "token_scores": list(text.gains[text.first - 1 :]),
        **values,
    }


def _search_rows(
    searched: SearchResult,
    long: Folded,
    evidence: Evidence,
    names: Mapping[Tokens, str],
    vocabulary: Vocabulary,
) -> Iterator[Row]:
    """Phrases and runs, compared with null models; then fragments; then complete samples."""
    scores = evidence.scores
    for entries in (long, searched.fragments, searched.samples):
        for group, (text, copies) in enumerate(entries):
            kind = "fragment"
            if entries is long:
                kind = "run" if text.is_repetitive else "phrase"
            elif text.is_repetitive:
                continue
            row = _row(
                vocabulary,
                text,
                kind=kind,
                lead=vocabulary.decode(text.prefix).rpartition("\n")[2] if text.prefix else "",
                group=group,
                copies=copies,
                proposal=text.source,
                place=names.get(text.prompt, "a prompt") if text.prompt else "",
            )
            if entries is long:
                row["found"] = evidence.found(text.score)
                row["e_value"] = scores and scores.e_value(text.score)
                row["reached_by"] = scores and scores.reached(text.score)
            yield row


def _secret_row(
    vocabulary: Vocabulary,
    evidence: Evidence,
    index: int,
    row_index: int | None,
    share: float,
    *,
    group: int,
) -> Row:
    """A listed secret; the row at `row_index` contains a share of it."""
    secret = evidence.secrets[index]
    null_scores = [null.secrets[index] for null in evidence.nulls]
    reached = sum(score >= secret.text.score for score in null_scores)
    return _row(
        vocabulary,
        secret.text,
        group=group,
        phrase=vocabulary.decode(secret.text.tokens).strip(),
        kind="known",
        place=secret.context,
        reached_by=reached if null_scores else None,
        p_value=evidence.p_values[index],
        p_adjusted=evidence.adjusted[index],
        known_in=None if row_index is None else row_index + 1,
        known_part=share,
        generated_in=secret.texts,
        coincidence=secret.proof and secret.proof.bound,
    )
