r"""Completion of canaries by a model that reads their first tokens.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL, arXiv:2103.07567, section 3 (the tab attack): the model reads the first
token at the beginning of a text and must generate the whole rest of the canary.

Differs from the paper: the prefix may be longer; a beam search follows more than the greedy
continuation; the shortest sufficient prefix is reported; controls, and the words of each canary in
another order, are tried as well; and every rate has an interval. Greedy decoding completes at most
one of several canaries with the same prefix. With subwords, a token may be less than a word.

The p-value is the probability that a model that never read the canaries completes as many. It is
the smaller of two p-values, doubled: Fisher's exact test against the controls, and, for canaries
of words in random order, a bound for any model: the m words after the prefix have this order with
probability 1 / m! (Poisson binomial, `metrics.tests`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import factorial
from statistics import median_low
from typing import Any

from scipy.stats import hypergeom

from vestige import claims
from vestige.audits.extraction.continuations import complete_texts
from vestige.claims import Check, Claim
from vestige.claims.effects import COMPLETED_SHARE
from vestige.claims.model_checks import canary_checks
from vestige.data.canaries.texts import RANDOM_ORDER, Canary, canary_ids, load_canaries, shuffled
from vestige.metrics.estimates import Estimate, rate, rates_by
from vestige.metrics.tests import at_least
from vestige.models.prefix import in_learned_context
from vestige.models.protocols import NextToken
from vestige.results import Measurement
from vestige.session import Session
from vestige.training.word_frequencies import useless_model

Row = Mapping[str, Any]
Progress = Callable[[int, int], None]

CONTROLS = CONTROL, SHUFFLED = "control", "shuffled"
CANARY = "canary"
"""Kinds of texts: planted; made the same way and never planted; planted, in another order."""

LEVEL = 0.05

_MAX_CONTINUATIONS = 1024
"""Continuations in memory at a time: each has a state, a megabyte for a large model."""


@dataclass(frozen=True, kw_only=True)
class Completion(Measurement):
    """Completion of canaries and controls by a model.

    Attributes:
        attempts: a row per text, the canaries as they were given, then their shuffled tokens. kind
            is "canary", "control" or "shuffled"; canary its number, from 1. greedy, beam_place,
            prefix_needed and log_prob are those of `continuations.complete_texts`; beam_best and
            beam_kept follow from beam_place. chance: upper bound of the probability that greedy
            decoding gives the rest of a canary that was never read.
        prefix: tokens of each text that the model read.
        beam: width of the beam search.
        checks: of the model and of the canaries; a verdict needs them.
    """

    attempts: tuple[Row, ...]
    prefix: int
    beam: int
    checks: tuple[Check, ...] = ()

    def of_kind(self, kind: str) -> list[Row]:
        """The attempts of a kind."""
        return [row for row in self.attempts if row["kind"] == kind]

    def rate(self, kind: str = CANARY, *, by: str = "greedy") -> Estimate | None:
        """Rate of completion of a kind of texts by "greedy", "beam_best" or "beam_kept"."""
        return rate(row[by] for row in self.of_kind(kind))

    def by_copies(self) -> dict[int, Estimate]:
        """The planted canaries' rate of greedy completion for each number of copies."""
        planted = self.of_kind(CANARY)
        return rates_by((row["copies"] for row in planted), (row["greedy"] for row in planted))

    @property
    def test(self) -> claims.Test | None:
        """The test that a model that never read the canaries completes as many.

        None without planted canaries, or without controls and random orders.
        """
        planted, controls = self.rate(), self.rate(CONTROL)
        if planted is None:
            return None
        bounds = [row["chance"] for row in self.of_kind(CANARY)]
        tests = []  # p-value, and its least possible value
        if controls is not None:
            texts = planted.n + controls.n
            completed = planted.count + controls.count
            p = hypergeom.sf(planted.count - 1, texts, completed, planted.n)
            least = hypergeom.sf(planted.n - 1, texts, planted.n, planted.n)
            tests.append((float(p), float(least)))
        if min(bounds) < 1:
            tests.append((at_least(planted.count, bounds), at_least(planted.n, bounds)))
        if not tests:
            return None
        p, least = (min(1.0, len(tests) * min(values)) for values in zip(*tests, strict=True))
        return claims.Test(p, least, LEVEL, "unplanted canaries or guesses")

    @property
    def claim(self) -> Claim:
        """The verdict, with its test and checks; "no leak shown" excludes `COMPLETED_SHARE`."""
        planted, test = self.rate(), self.test
        powerful = claims.bounded(
            test,
            None if planted is None else planted.high,
            limit=COMPLETED_SHARE,
            what="of planted canaries completed",
        )
        share = planted and replace(planted, name="completed share of planted canaries", n=0)
        return Claim("extract canaries", test, (*self.checks, powerful), share)

    @property
    def verdict(self) -> claims.Verdict:
        """The verdict of the claim."""
        return self.claim.verdict

    def summary(self) -> dict[str, object]:
        """One row of a results table; a rate is None if there is nothing to count."""
        return {**self.claim.summary(), **self.figures()}

    def figures(self) -> dict[str, object]:
        """The summary without the verdict, which needs the checks."""
        planted = self.of_kind(CANARY)
        prefixes = [row["prefix_needed"] for row in planted if row["prefix_needed"] is not None]
        figures: dict[str, object] = {
            "prefix": self.prefix, "beam": self.beam, "confidence": 0.95, "canaries": len(planted)
        }  # fmt: skip
        rates = {by: self.rate(by=by) for by in ("greedy", "beam_best", "beam_kept")}
        rates |= {kind: self.rate(kind) for kind in CONTROLS}
        for name, completed in rates.items():
            figures |= {
                f"{name}_completed": completed and completed.count,
                f"{name}_trials": completed.n if completed else 0,
                f"{name}_rate": completed and completed.value,
                f"{name}_low": completed and completed.low,
                f"{name}_high": completed and completed.high,
            }
        figures["whole_needed"] = len(planted) - len(prefixes)
        figures["median_prefix_needed"] = median_low(prefixes) if prefixes else None
        return figures

    def rows(self) -> Iterator[Row]:
        """One row per text."""
        return iter(self.attempts)


def complete_canaries(
    run: Session, model: Any, manifest: Any, *, prefix: int | None, beam: int
) -> Completion:
    """Complete the canaries of a manifest, its file or its folder; with the model's checks."""
    warning = useless_model(model)
    loaded = run.model("model", model)
    sealed, canaries = load_canaries(manifest, loaded.vocabulary, run.monitor)
    run.data |= {"manifest": sealed.sha256, "planted": sealed.planted}
    prefix = run.record_choice(prefix=prefix or 1)
    with run.progress("completing canaries") as step:
        completion = complete(
            in_learned_context(loaded, sealed), canaries, prefix=prefix, beam=beam, progress=step
        )
    checks = canary_checks(loaded, manifest, sealed, readable=len(canaries), useless=warning)
    return replace(completion, checks=checks)


def complete(
    model: NextToken,
    canaries: Sequence[Canary],
    *,
    prefix: int = 1,
    beam: int = 10,
    progress: Progress | None = None,
) -> Completion:
    """Let the model read the first tokens of each canary, and test whether it generates the rest.

    A canary is read from the beginning of a text, as in training. The beam search follows the most
    probable continuations of the canary's length; the end of a text is excluded.

    Raises:
        ValueError: a canary is no longer than the prefix.
        DataError: the model's vocabulary lacks a word.
        ModelError: the model's distribution is not finite.

    Example:
        >>> from vestige import TableModel
        >>> model = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
        >>> completion = complete(model, [Canary("w2 w3", "given", (), 5)])
        >>> completion.rate().count, completion.attempts[0]["prefix_needed"]
        (1, 0)
    """
    rows = [_canary_row(model, canary, number, prefix) for number, canary in enumerate(canaries, 1)]
    for row in [row for row in rows if row["kind"] == CANARY]:
        if (tokens := shuffled(row["tokens"])) is not None:
            phrase = model.vocabulary.decode(tokens)
            rows.append({**row, "kind": SHUFFLED, "tokens": list(tokens), "phrase": phrase})
    done = 0
    for batch in _batches(rows, beam):
        results = complete_texts(model, [row["tokens"] for row in batch], prefix=prefix, beam=beam)
        for row, result in zip(batch, results, strict=True):
            position = result["beam_place"]
            row |= {**result, "beam_best": position == 1, "beam_kept": position is not None}
        done += len(batch)
        if progress is not None:
            progress(done, len(rows))
    return Completion(attempts=tuple(rows), prefix=prefix, beam=beam)


def _batches(rows: Sequence[dict[str, Any]], beam: int) -> Iterator[list[dict[str, Any]]]:
    """Batches of texts, the longest first; a beam search needs texts of one length."""
    ordered = sorted(rows, key=_length, reverse=True)
    groups = [ordered] if beam == 1 else [list(group) for _, group in groupby(ordered, _length)]
    size = max(1, _MAX_CONTINUATIONS // beam)
    return (group[at : at + size] for group in groups for at in range(0, len(group), size))


def _length(row: Row) -> int:
    return len(row["tokens"])


def _canary_row(model: NextToken, canary: Canary, number: int, prefix: int) -> dict[str, Any]:
    """The row of a canary without results. Errors name its number: its words are secret."""
    ids = canary_ids(number, canary, model.vocabulary)
    if len(ids) <= prefix:
        raise ValueError(
            f"prefix must be shorter than every canary, got {prefix}: canary {number} has "
            f"{len(ids)} tokens"
        )
    words = canary.phrase.split()
    prefix_words = len(model.vocabulary.decode(ids[:prefix]).split())
    in_random_order = canary.pattern in RANDOM_ORDER and len(set(words)) == len(words)
    return {
        "kind": CANARY if canary.planted else CONTROL,
        "canary": number,
        "copies": canary.copies,
        "pattern": canary.pattern,
        "user": canary.user,
        "phrase": canary.phrase,
        "tokens": list(ids),
        "chance": 1 / factorial(max(0, len(words) - prefix_words)) if in_random_order else 1.0,
    }
