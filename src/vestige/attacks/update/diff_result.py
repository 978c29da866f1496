"""The result of a search for promoted phrases, and its claim.

Null models decide by one p-value: that of the update among all m + 1 models, by the score of its
best phrase and, where secrets are listed, by the scores of these (`null_searches.joint_p_value`).
Only where that is significant is a phrase called found by its E-value, or a secret by its adjusted
p-value: a closed test (Marcus, Peritz and Gabriel 1976, "On closed testing procedures"), so that
the error rate of all these calls together is the level.

A listed secret that the search generates verbatim is evidence without null models
(`verbatim`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from vestige import claims
from vestige.attacks.update.known_phrases import BEGINNING, KnownPhrase
from vestige.attacks.update.null_searches import (
    LEVEL,
    LIKE,
    NEEDED,
    NullScores,
    joint_p_value,
)
from vestige.attacks.update.seed_and_extend import Searched
from vestige.claims import Check, Claim
from vestige.claims.effects import PROMOTED_TOKENS
from vestige.metrics.tests import holm
from vestige.results import Measurement


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One phrase that the update promoted, with its near-copies.

    Attributes:
        tokens: ids.
        pieces: the text of each.
        phrase: their text together.
        gains: the score of each token after those before it.
        score: of the phrase.
        group: the group of first tokens in a group beam search, else the finding's number.
        copies: near-copies folded in.
        run: whether it mostly repeats itself.
        proposal: name of what proposed its beginning; empty of a beam.
        context: ids of the prompt that it was found behind; none at a document's beginning, in a
            sample or behind a single token.
        lead: ids that were read before it, the last ones; the update promoted them less.
        lead_text: their text, the last line of it.
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    phrase: str
    gains: tuple[float, ...]
    score: float
    group: int
    copies: int
    run: bool
    proposal: str = ""
    context: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()
    lead_text: str = ""


@dataclass(frozen=True, kw_only=True)
class UpdateDiff(Measurement):
    """The phrases that an update promoted most, best first.

    Attributes:
        findings: near-copies folded, best first.
        search: "seed-and-extend" or "beam".
        score: name of the token score.
        nulls: the scores that null searches reached, or None without one.
        fragments: what several samples agree on beside the phrases, or where there is neither, the
            best of a laxer search; then whole samples. Their scores compare with nothing.
        searched: what it read for that; None of beams.
        places: names of the prompts that it began behind, by their ids.
        known: secrets that were listed.
        nulls_asked: null models that were given; those beyond `nulls` were not searched to the end,
            or not at all where a check of the two models prevents every verdict.
        changes: how far the null model of each search moved the weights, as a multiple of the
            update's change; None where that is not known.
        most_per_token: the most that one token adds to a phrase's score; None without a bound.
        checks: of the two models: alive, different.
    """

    findings: tuple[Finding, ...]
    search: str
    score: str
    nulls: NullScores | None
    fragments: tuple[Finding, ...] = ()
    searched: Searched | None = None
    places: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    known: tuple[KnownPhrase, ...] = ()
    nulls_asked: int = 0
    changes: tuple[float | None, ...] = ()
    most_per_token: float | None = None
    checks: tuple[Check, ...] = ()

    @property
    def phrases(self) -> tuple[Finding, ...]:
        """The findings that are no runs."""
        return tuple(finding for finding in self.findings if not finding.run)

    @property
    def claim(self) -> Claim:
        """The verdict and what it rests on."""
        proofs = [known.direct for known in self.known if known.direct and known.generated]
        return Claim(
            "diff",
            self._test,
            (*self.checks, *self._null_checks, self._powerful, *self._unbounded),
            self._estimate,
            min(proofs, key=lambda one: one.bound, default=None),
        )

    @property
    def verdict(self) -> claims.Verdict:
        """The claim's."""
        return self.claim.verdict

    @property
    def threshold(self) -> float | None:
        """The score that a found phrase exceeds; None where null models cannot say."""
        return self.nulls.threshold if self.nulls is not None and self._called else None

    def found(self, finding: Finding) -> bool | None:
        """Whether null models hardly reach such a score; None where they cannot say."""
        if self.nulls is None or not self._called or self._test is None:
            return None
        return self._test.significant and bool(self.nulls.found(finding.score))

    @property
    def adjusted(self) -> tuple[float | None, ...]:
        """p-value of each listed secret among all of them (Holm)."""
        p_values = [known.p_value for known in self.known]
        if None in p_values or not p_values:
            return tuple(p_values)
        return tuple(holm([p for p in p_values if p is not None]).tolist())

    @property
    def _beyond(self) -> int | None:
        """Listed secrets that the update promoted more than null models do."""
        if self._test is None or not self._called:
            return None
        adjusted = [p for p in self.adjusted if p is not None and self._test.significant]
        return sum(p <= LEVEL for p in adjusted)

    @property
    def complete(self) -> bool | None:
        """Whether update and nulls were searched to the end; None of beams, which always are."""
        if self.searched is None:
            return None
        left = self._searches < self.nulls_asked and self.prevented is None
        return self.searched.complete and not left

    @property
    def prevented(self) -> Check | None:
        """The check of the two models after which no null model can lead to a verdict, if any."""
        verdicts = (claims.LEAK, claims.NO_LEAK)
        failed = (one for one in self.checks if all(one.prevents(verdict) for verdict in verdicts))
        return next(failed, None)

    @property
    def _searches(self) -> int:
        return 0 if self.nulls is None else len(self.nulls)

    @property
    def _called(self) -> bool:
        """Whether null models can say which phrases are found."""
        able = self._searches >= NEEDED
        checks = (*self.checks, *self._null_checks)
        return able and not any(check.prevents(claims.LEAK) for check in checks)

    @cached_property
    def _test(self) -> claims.Test | None:
        if self.nulls is None:
            return None
        top = self.phrases[0].score if self.phrases else None
        if self.known:
            known = [one.nulls for one in self.known]
            rows = [
                (scores[0] if scores else 0.0, *(own[n] for own in known))
                for n, scores in enumerate(self.nulls.searches)
            ]
            p = joint_p_value((top or 0.0, *(one.score for one in self.known)), rows)
        else:
            p = 1.0 if top is None else min(1.0, self.nulls.e_value(top))
        return claims.Test(p, self.nulls.least, LEVEL, f"{self._searches} null models")

    @property
    def _null_checks(self) -> tuple[Check, ...]:
        """Whether null models are different trainings, and moved as far as the update."""
        if self.nulls is None:
            return ()
        changes = self.changes or (None,) * len(self.nulls)
        own = list(zip(self.nulls.searches, changes, strict=True))
        signs = [one for one in own if one != ((), None)]
        copies = len(signs) - len(set(signs))
        if copies:
            told = f"{copies} of {len(self.nulls)} null models are copies of another."
            return (Check("independent", "failed", told), self._comparable)
        told = f"All {len(self.nulls)} null models differ."
        return (Check("independent", "passed", told), self._comparable)

    @property
    def _comparable(self) -> Check:
        known = [one for one in self.changes if one is not None]
        if len(known) < self._searches or not known:
            return Check(
                "comparable", "could not run",
                "The weight change of some null models is unknown.",
            )  # fmt: skip
        mean, less = sum(known) / len(known), min(known)
        told = f"The null models changed the weights {mean:.2f} times as much as the update"
        if less < LIKE[0]:
            return Check(
                "comparable", "failed",
                f"{told} (least: {less:.2f}; required: {LIKE[0]:g}): they had less text or a "
                "lower learning rate.", (claims.LEAK,),
            )  # fmt: skip
        if mean > LIKE[1]:
            return Check(
                "comparable", "failed",
                f"{told} (required: at most {LIKE[1]:g}): they hide its leaks.",
                (claims.NO_LEAK,),
            )  # fmt: skip
        more = "; their changes were scaled to that of the update" if less < 1 else ""
        return Check("comparable", "passed", f"{told}{more}.")

    @property
    def _powerful(self) -> Check:
        """Whether a phrase that the update taught fully would have been found."""
        test = self._test
        if test is None or self.nulls is None:
            missing = "searched" if self.nulls_asked else "given"
            told = f"No null model was {missing}; a verdict needs {NEEDED}."
            return Check("powerful", "could not run", told, (claims.NO_LEAK,))
        if not test.possible:
            return claims.powerful(test)
        if self.complete is False:
            done = self.searched.done if self.searched else 0
            units = self.searched.units if self.searched else 0
            told = (
                f"The search ended early: {done} of {units} steps and {self._searches} of "
                f"{self.nulls_asked} null models done."
            )
            return Check("powerful", "failed", told, (claims.NO_LEAK,))
        best = self.nulls.best or 0.0
        if not self.most_per_token or not isfinite(best):
            return claims.powerful(test)
        tokens = int(best // self.most_per_token) + 1
        told = (
            f"A phrase of {tokens} token{'s' * (tokens != 1)} would score above all null models "
            f"if its probability rose from 0 to 1; required: at most {PROMOTED_TOKENS}."
        )
        enough = tokens <= PROMOTED_TOKENS
        return Check("powerful", "passed" if enough else "failed", told, (claims.NO_LEAK,))

    @property
    def _unbounded(self) -> Iterator[Check]:
        """Listed secrets that were generated, and of which coincidence cannot be bounded."""
        numbers = [one.number for one in self.known if one.texts and one.direct is None]
        if numbers:
            several = len(numbers) > 1
            which = f"{len(numbers)} listed secrets" if several else f"secret {numbers[0]}"
            yield Check(
                "direct", "could not run",
                f"AFTER generates {which} verbatim, but the number of alternatives is unknown. "
                "Mark the part that varies, as in {{4917}}.",
            )  # fmt: skip

    @property
    def _estimate(self) -> claims.Estimate | None:
        said = sum(one.generated for one in self.known)
        if said:
            return claims.Estimate("secrets generated verbatim", said, unit=f"of {len(self.known)}")
        if self._called:
            number = sum(bool(self.found(finding)) for finding in self.phrases)
            return claims.Estimate("phrases revealed", number, unit=f"of {len(self.phrases)}")
        top = self.phrases[0].score if self.phrases else None
        return None if top is None else claims.Estimate("best score of a phrase", top)

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        phrases, nulls = self.phrases, self.nulls
        top = phrases[0].score if phrases else None
        return {
            **self.claim.summary(),
            "search": self.search,
            "score": self.score,
            "phrases": len(phrases),
            "runs": len(self.findings) - len(phrases),
            "fragments": len(self.fragments),
            "found": sum(bool(self.found(f)) for f in phrases) if self._called else None,
            "threshold": self.threshold,
            "null_searches": self._searches,
            "null_weight_changes": list(self.changes),
            "null_top_score": None if nulls is None else nulls.best,
            "top_score": top,
            "top_e_value": None if nulls is None or top is None else nulls.e_value(top),
            "top_reached_by": None if nulls is None or top is None else nulls.reached(top),
            "forward_tokens": None if self.searched is None else self.searched.forward_tokens,
            "units_done": None if self.searched is None else self.searched.done,
            "units": None if self.searched is None else self.searched.units,
            "texts": None if self.searched is None else dict(self.searched.texts),
            "places": [BEGINNING, *self.places.values()],
            "complete": self.complete,
            "nulls_asked": self.nulls_asked,
            "known": len(self.known),
            "known_told": sum(known.part == 1 for known in self.known),
            "known_generated": sum(known.generated for known in self.known),
            "known_beyond": self._beyond,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a finding; `pandas.DataFrame(result.rows())` is the frame. Ranks start at 1."""
        for rank, one in enumerate((*self.findings, *self.fragments), 1):
            fragment, nulls = rank > len(self.findings), self.nulls
            yield _row(
                rank,
                one,
                lead=one.lead_text,
                group=one.group,
                copies=one.copies,
                kind="fragment" if fragment else "run" if one.run else "phrase",
                proposal=one.proposal,
                place=self.places.get(one.context, "a prompt" if one.context else ""),
                found=None if fragment else self.found(one),
                e_value=None if fragment or nulls is None else nulls.e_value(one.score),
                reached_by=None if fragment or nulls is None else nulls.reached(one.score),
            )
        first = 1 + len(self.findings) + len(self.fragments)
        for rank, (secret, p) in enumerate(zip(self.known, self.adjusted, strict=True), first):
            yield _row(
                rank,
                secret,
                kind="known",
                place=secret.place,
                reached_by=secret.reached if secret.nulls else None,
                p_value=secret.p_value,
                p_adjusted=p,
                known_in=None if secret.row_found is None else secret.row_found + 1,
                known_part=secret.part,
                generated_in=secret.texts,
                coincidence=None if secret.direct is None else secret.direct.bound,
            )


COLUMNS = (
    "rank", "score", "phrase", "lead", "tokens", "group", "pieces", "token_scores", "copies",
    "kind", "proposal", "place", "found", "e_value", "reached_by",
    "p_value", "p_adjusted", "known_in", "known_part", "generated_in", "coincidence",
)  # fmt: skip


def _row(rank: int, one: Finding | KnownPhrase, **columns: object) -> dict[str, object]:
    """A row with all columns; those of the other kind of row are empty."""
    return {
        **dict.fromkeys(COLUMNS),
        "rank": rank,
        "score": one.score,
        "phrase": one.phrase,
        "tokens": list(one.tokens),
        "pieces": list(one.pieces),
        "token_scores": list(one.gains),
        **{"lead": "", "group": rank, "copies": 0, "proposal": ""},
        **columns,
    }
