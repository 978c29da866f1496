r"""Completion of canaries by a model that reads their first tokens.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL, arXiv:2103.07567, section 3 (the tab attack): the model reads the first
token at the beginning of a text and must generate the whole rest of the canary.

Differs from the paper: the prefix may be longer; a beam search follows more than the greedy
continuation; the shortest sufficient prefix is reported; controls and the words of each canary in
another order are tried as well; and every rate has an interval. Greedy decoding completes at most
one of several canaries with the same prefix. With subwords, a token may be less than a word.

The claim asks how probable so many completions are for a model that never read the canaries. It
takes the smaller of two p-values, doubled: Fisher's exact test against the controls, and, for
canaries of words in random order, the probability 1 / m! of the order of m words after the prefix,
whatever the model (Poisson binomial, `metrics.tests`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import factorial
from statistics import median_low
from typing import Any

from scipy.stats import hypergeom

from vestige import claims
from vestige.audits.extraction.continuations import attempts
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
"""Kinds of texts: planted; made alike and never planted; a planted one in another order."""

LEVEL = 0.05

_ROWS = 1024
"""Continuations that are followed together: a row of a large model's state is a megabyte."""


@dataclass(frozen=True, kw_only=True)
class Completion(Measurement):
    """Completion of canaries and controls by a model.

    Attributes:
        attempts: a row per text, the canaries as they were given, then their shuffled tokens. kind
            is "canary", "control" or "shuffled"; canary its number, from 1. greedy, beam_place,
            prefix_needed and log_prob are those of `continuations.attempts`; beam_best and
            beam_kept follow from beam_place. chance: upper bound of the probability that greedy
            decoding gives the rest of a canary that was never read.
        prefix: tokens of each text that the model read.
        beam: continuations that the beam search kept.
        checks: of the model and of what it could read; a verdict needs them.
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
        """How probable so many completions are for a model that never read the canaries.

        None without planted canaries, or if neither controls nor random orders bound it.
        """
        own, never = self.rate(), self.rate(CONTROL)
        if own is None:
            return None
        chances = [row["chance"] for row in self.of_kind(CANARY)]
        found = []
        if never is not None:
            # That so many completed texts, or more, are canaries; and that all canaries are.
            texts = own.n + never.n
            pairs = ((own.count, own.count + never.count), (own.n, own.n))
            found.append([float(hypergeom.sf(k - 1, texts, of, own.n)) for k, of in pairs])
        if min(chances) < 1:
            found.append([at_least(n, chances) for n in (own.count, own.n)])
        if not found:
            return None
        p, least = (min(1.0, len(found) * min(each)) for each in zip(*found, strict=True))
        return claims.Test(p, least, LEVEL, "unplanted canaries or guesses")

    @property
    def claim(self) -> Claim:
        """The verdict, with its test and checks; "no leak shown" excludes `COMPLETED_SHARE`."""
        own, test = self.rate(), self.test
        powerful = claims.bounded(
            test,
            None if own is None else own.high,
            limit=COMPLETED_SHARE,
            what="of planted canaries completed",
        )
        share = own and replace(own, name="completed share of planted canaries", n=0)
        return Claim("extract canaries", test, (*self.checks, powerful), share)

    @property
    def verdict(self) -> claims.Verdict:
        """What the test and the checks allow to say."""
        return self.claim.verdict

    def summary(self) -> dict[str, object]:
        """One row of a results table; a rate is None if there is nothing to count."""
        return {**self.claim.summary(), **self.figures()}

    def figures(self) -> dict[str, object]:
        """The summary without the verdict, which needs no checks."""
        needed = [row["prefix_needed"] for row in self.of_kind(CANARY)]
        known = [one for one in needed if one is not None]
        figures: dict[str, object] = {
            "prefix": self.prefix, "beam": self.beam, "confidence": 0.95, "canaries": len(needed)
        }  # fmt: skip
        rates = {by: self.rate(by=by) for by in ("greedy", "beam_best", "beam_kept")}
        for name, found in (rates | {kind: self.rate(kind) for kind in CONTROLS}).items():
            figures |= {
                f"{name}_completed": found and found.count,
                f"{name}_trials": found.n if found else 0,
                f"{name}_rate": found and found.value,
                f"{name}_low": found and found.low,
                f"{name}_high": found and found.high,
            }
        figures["whole_needed"] = len(needed) - len(known)
        figures["median_prefix_needed"] = median_low(known) if known else None
        return figures

    def rows(self) -> Iterator[Row]:
        """One row per text."""
        return iter(self.attempts)


def complete_canaries(
    run: Session, model: Any, manifest: Any, *, prefix: int | None, beam: int
) -> Completion:
    """`complete` of each canary of a manifest, its file or its folder, with the model's checks."""
    warning = useless_model(model)
    loaded = run.model("model", model)
    sealed, canaries = load_canaries(manifest, loaded.vocabulary, run.monitor)
    run.data |= {"manifest": sealed.sha256, "planted": sealed.planted}
    prefix = run.chosen(prefix=prefix or 1)
    with run.progress("completing canaries") as step:
        found = complete(
            in_learned_context(loaded, sealed), canaries, prefix=prefix, beam=beam, progress=step
        )
    checks = canary_checks(loaded, manifest, sealed, readable=len(canaries), useless=warning)
    return replace(found, checks=checks)


def complete(
    model: NextToken,
    canaries: Sequence[Canary],
    *,
    prefix: int = 1,
    beam: int = 10,
    progress: Progress | None = None,
) -> Completion:
    """Let the model read the first tokens of each canary and see whether it generates the rest.

    A canary is read from the beginning of a text, as it was trained on. The beam keeps the most
    probable continuations of the canary's length and never takes the end of a text.

    Raises:
        ValueError: a canary is no longer than the prefix.
        DataError: the model's vocabulary lacks a word.
        ModelError: the model's distribution is not finite.

    Example:
        >>> from vestige import TableModel
        >>> model = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
        >>> found = complete(model, [Canary("w2 w3", "given", (), 5)])
        >>> found.rate().count, found.attempts[0]["prefix_needed"]
        (1, 0)
    """
    texts = [_text(model, canary, number, prefix) for number, canary in enumerate(canaries, 1)]
    for text in [text for text in texts if text["kind"] == CANARY]:
        if (other := shuffled(text["tokens"])) is not None:
            phrase = model.vocabulary.decode(other)
            texts.append({**text, "kind": SHUFFLED, "tokens": list(other), "phrase": phrase})
    done = 0
    for block in _blocks(texts, beam):
        found = attempts(model, [text["tokens"] for text in block], prefix=prefix, beam=beam)
        for text, attempt in zip(block, found, strict=True):
            place = attempt["beam_place"]
            text |= {**attempt, "beam_best": place == 1, "beam_kept": place is not None}
        done += len(block)
        if progress is not None:
            progress(done, len(texts))
    return Completion(attempts=tuple(texts), prefix=prefix, beam=beam)


def _blocks(texts: Sequence[dict[str, Any]], beam: int) -> Iterator[list[dict[str, Any]]]:
    """The longest texts first, as many as there is room for; a beam needs texts of one length."""
    ordered = sorted(texts, key=_tokens, reverse=True)
    groups = [ordered] if beam == 1 else [list(group) for _, group in groupby(ordered, _tokens)]
    room = max(1, _ROWS // beam)
    return (group[at : at + room] for group in groups for at in range(0, len(group), room))


def _tokens(text: Row) -> int:
    return len(text["tokens"])


def _text(model: NextToken, canary: Canary, number: int, prefix: int) -> dict[str, Any]:
    """A canary before it is tried; an error names its number, since its words are secret."""
    ids = canary_ids(number, canary, model.vocabulary)
    if len(ids) <= prefix:
        raise ValueError(
            f"prefix must be shorter than every canary, got {prefix}: canary {number} has "
            f"{len(ids)} tokens"
        )
    words, read = canary.phrase.split(), len(model.vocabulary.decode(ids[:prefix]).split())
    random = canary.pattern in RANDOM_ORDER and len(set(words)) == len(words)
    return {
        "kind": CANARY if canary.planted else CONTROL,
        "canary": number,
        "copies": canary.copies,
        "pattern": canary.pattern,
        "user": canary.user,
        "phrase": canary.phrase,
        "tokens": list(ids),
        "chance": 1 / factorial(max(0, len(words) - read)) if random else 1.0,
    }
