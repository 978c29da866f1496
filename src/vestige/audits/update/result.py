"""The table and the summary of `vestige diff`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.audits.update.evidence import Evidence, Nulls, Secrets
from vestige.audits.update.known_secrets import contained_in
from vestige.audits.update.pair import Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import Found
from vestige.audits.update.units import Settings
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
    score: TokenScore,
    prompts: Sequence[Prompt],
    vocabulary: Vocabulary,
    checks: tuple[Check, ...] = (),
    nulls: Nulls = Nulls(),
    secrets: Secrets = Secrets(),
    top: int = 50,
) -> Result:
    """Rows of phrases and runs, then of fragments, then of listed secrets; and the claim.

    A row's `found`, E-value and `reached_by` compare its score with null models, those of a secret
    its own scores there; `p_adjusted` is among all listed secrets (Holm). `known_in` is the rank
    with the largest part of a secret. `coincidence` bounds the probability that a secret in
    `generated_in` texts was generated without a leak.

    Args:
        found: the search of the update.
        settings, score, prompts, vocabulary: of the search.
        checks: of the two models.
        nulls: the searches of null models.
        secrets: what the search says of listed secrets.
        top: phrases and fragments that are listed.
    """
    long = [entry for entry in found.phrases if len(entry[0].phrase) >= settings.min_tokens]
    phrases = [phrase for phrase, _ in long[:top] if not phrase.is_run]
    evidence = Evidence(
        phrases=phrases,
        nulls=nulls,
        secrets=secrets,
        checks=checks,
        units=found.units,
        expected=found.expected,
        most_per_token=score.bound - settings.token_penalty,
    )
    table = _Table(vocabulary, {one.shown_tokens: one.name for one in prompts}, evidence)
    rows = [table.phrase(group, *entry) for group, entry in enumerate(long[:top])]
    rows += list(table.fragments(found))[: max(0, top - len(long))]
    texts = [phrase.tokens for phrase, _ in long[:top]]
    contained = [contained_in(one, texts) for one in secrets.listed]
    known = table.secrets(contained, first=1 + len(rows))
    rows = [{**row, "rank": rank} for rank, row in enumerate((*rows, *known), 1)]
    kinds = [row["kind"] for row in rows]
    best = phrases[0].score if phrases else None
    above = [bool(evidence.found(phrase.score)) for phrase in phrases]
    summary = {
        **evidence.claim.summary(),
        "search": "seed-and-extend",
        "score": score.name,
        "phrases": len(phrases),
        "runs": kinds.count("run"),
        "fragments": kinds.count("fragment"),
        "found": sum(above) if evidence.decides else None,
        "threshold": evidence.threshold,
        "null_searches": nulls.searched,
        "null_weight_changes": list(nulls.changes),
        "null_top_score": nulls.scores and nulls.scores.best,
        "top_score": best,
        "top_e_value": None if best is None else nulls.scores and nulls.scores.e_value(best),
        "top_reached_by": None if best is None else nulls.scores and nulls.scores.reached(best),
        "forward_tokens": sum(found.tokens),
        "units_done": found.units,
        "units": found.expected,
        "texts": found.texts,
        "places": [prompt.name for prompt in prompts],
        "complete": evidence.complete,
        "nulls_asked": nulls.given,
        "known": len(secrets.listed),
        "known_told": sum(share == 1 for _, share in contained),
        "known_generated": len(secrets.generated),
        "known_beyond": evidence.promoted,
    }
    return Result(kind="UpdateDiff", summary=summary, rows=tuple(rows), claim=evidence.claim)


@dataclass(frozen=True)
class _Table:
    """Makes rows; each has all columns, and those of another kind of row are empty."""

    vocabulary: Vocabulary
    places: Mapping[Tokens, str]
    evidence: Evidence

    def phrase(self, group: int, phrase: Text, copies: int) -> Row:
        """A phrase or a run, compared with null models."""
        nulls = self.evidence.nulls.scores
        return {
            **self._found(group, phrase, copies),
            "kind": "run" if phrase.is_run else "phrase",
            "found": self.evidence.found(phrase.score),
            "e_value": nulls and nulls.e_value(phrase.score),
            "reached_by": nulls and nulls.reached(phrase.score),
        }

    def fragments(self, found: Found) -> Iterator[Row]:
        """What samples agree on, then whole samples."""
        for entries in (found.fragments, found.samples):
            for group, (phrase, copies) in enumerate(entries):
                if not phrase.is_run:
                    yield {**self._found(group, phrase, copies), "kind": "fragment"}

    def secrets(
        self, contained: Sequence[tuple[int | None, float]], *, first: int
    ) -> Iterator[Row]:
        """Listed secrets, each with the row that contains most of it; ranks begin at `first`."""
        nulls, secrets = self.evidence.nulls, self.evidence.secrets
        for number, (place, secret) in enumerate(secrets.promoted):
            (row, share), (texts, proof) = contained[number], secrets.proofs[number]
            others = [one[number] for one in nulls.secrets]
            yield {
                **self._row(secret),
                "group": first + number,
                "phrase": self.vocabulary.decode(secret.tokens).strip(),
                "kind": "known",
                "place": place,
                "reached_by": sum(s >= secret.score for s in others) if others else None,
                "p_value": self.evidence.p_values[number],
                "p_adjusted": self.evidence.adjusted[number],
                "known_in": None if row is None else row + 1,
                "known_part": share,
                "generated_in": texts,
                "coincidence": proof and proof.bound,
            }

    def _found(self, group: int, phrase: Text, copies: int) -> Row:
        """The columns of everything that the search found."""
        lead = self.vocabulary.decode(phrase.prefix) if phrase.prefix else ""
        return {
            **self._row(phrase),
            "lead": lead.rpartition("\n")[2],
            "group": group,
            "copies": copies,
            "proposal": phrase.source,
            "place": self.places.get(phrase.prompt, "a prompt") if phrase.prompt else "",
        }

    def _row(self, text: Text) -> Row:
        tokens = text.phrase
        return {
            **dict.fromkeys(COLUMNS),
            **{"lead": "", "copies": 0, "proposal": ""},
            "score": text.score,
            "phrase": self.vocabulary.decode(tokens),
            "tokens": list(tokens),
            "pieces": [self.vocabulary.piece(token) for token in tokens],
            "token_scores": list(text.gains[text.first - 1 :]),
        }
