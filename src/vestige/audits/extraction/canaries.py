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

from vestige import _validate, claims
from vestige.audits.extraction.continuations import attempts
from vestige.claims import Check, Claim
from vestige.claims.effects import COMPLETED_SHARE
from vestige.claims.model_checks import canary_checks
from vestige.data.manifest import RANDOM_ORDER, Canary, load_canaries, shuffled
from vestige.metrics.estimates import Estimate
from vestige.metrics.rates import rate, rates_by
from vestige.metrics.tests import at_least
from vestige.models.behind import asked_as_learnt
from vestige.models.protocols import NextToken
from vestige.results import Measurement
from vestige.session import Session
from vestige.training.word_frequencies import useless_model

Row = Mapping[str, Any]
Progress = Callable[[int, int], None]

CANARY, CONTROL, SHUFFLED = "canary", "control", "shuffled"
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
        confidence: of the intervals.
        checks: of the model and of what it could read; a verdict needs them.
    """

    attempts: tuple[Row, ...]
    prefix: int
    beam: int
    confidence: float = 0.95
    checks: tuple[Check, ...] = ()

    def of_kind(self, kind: str) -> list[Row]:
        """The attempts of a kind."""
        return [row for row in self.attempts if row["kind"] == kind]

    def rate(self, kind: str = CANARY, *, by: str = "greedy") -> Estimate | None:
        """Rate of completion of a kind of texts by "greedy", "beam_best" or "beam_kept"."""
        return rate([row[by] for row in self.of_kind(kind)], confidence=self.confidence)

    def by_copies(self, *, by: str = "greedy") -> dict[int, Estimate]:
        """The planted canaries' rate for each number of copies, fewest first."""
        planted = self.of_kind(CANARY)
        copies, completed = ([row[name] for row in planted] for name in ("copies", by))
        return rates_by(copies, completed, confidence=self.confidence)

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
        """The verdict, with its test and checks; "no leak shown" excludes `COMPLETED_SHARE`.

        Raises:
            ValueError: there are no checks of the model.
        """
        own, test = self.rate(), self.test
        if own is None or test is None or not test.possible:
            powerful = claims.powerful(test)
        else:
            most = own.interval.high
            powerful = Check(
                "powerful", "passed" if most <= COMPLETED_SHARE else "failed",
                f"At most {most:.0%} of such canaries are completed (95% CI); required: at most "
                f"{COMPLETED_SHARE:.0%}.",
                (claims.NO_LEAK,),
            )  # fmt: skip
        name = "completed share of planted canaries"
        share = own and claims.Estimate(name, own.value, *own.interval)
        return Claim("extract canaries", test, (*self.checks, powerful), share)

    @property
    def verdict(self) -> claims.Verdict:
        """What the test and the checks allow to say."""
        return self.claim.verdict

    def summary(self) -> dict[str, object]:
        """One row of a results table; a rate is None if there is nothing to count."""
        return {**self.claim.summary(), **self.figures()}

    def figures(self) -> dict[str, object]:
        """The summary without the verdict: scalars that need no checks."""
        needed = [row["prefix_needed"] for row in self.of_kind(CANARY)]
        known = [one for one in needed if one is not None]
        figures: dict[str, object] = {
            "prefix": self.prefix,
            "beam": self.beam,
            "confidence": self.confidence,
            "canaries": len(needed),
        }
        rates = {by: self.rate(by=by) for by in ("greedy", "beam_best", "beam_kept")}
        rates |= {kind: self.rate(kind) for kind in (CONTROL, SHUFFLED)}
        for name, found in rates.items():
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
    """Complete each canary of a manifest from its first tokens, with the checks of the model.

    Args:
        manifest: a manifest of canaries, its file or its folder.
        prefix: tokens that the model reads; None: one.
        beam: continuations that the beam search keeps.
    """
    warning = useless_model(model)
    loaded = run.model("model", model)
    sealed, canaries = load_canaries(manifest, loaded.vocabulary, run.monitor)
    run.data |= {"manifest": sealed.sha256, "planted": sealed.planted}
    prefix = run.chosen(prefix=prefix or 1)
    with run.progress("completing canaries") as step:
        found = complete(
            asked_as_learnt(loaded, sealed), canaries, prefix=prefix, beam=beam, progress=step
        )
    checks = canary_checks(loaded, manifest, sealed, readable=len(canaries), useless=warning)
    return replace(found, checks=checks)


def complete(
    model: NextToken,
    canaries: Sequence[Canary],
    *,
    prefix: int = 1,
    beam: int = 10,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Completion:
    """Let the model read the first tokens of each canary and see whether it generates the rest.

    A canary is read from the beginning of a text, as it was trained on. The beam keeps the most
    probable continuations of the canary's length and never takes the end of a text.

    Args:
        model: any model of next tokens.
        canaries: planted ones and controls, each longer than the prefix; one without ids is
            encoded with the model's vocabulary.
        prefix: tokens that the model reads, at least 1.
        beam: continuations that are kept, at least 1.
        confidence: of the intervals, in (0, 1).
        progress: called with the texts done and in all.

    Returns:
        one attempt for each canary in their order, then one for each shuffled canary.

    Raises:
        ValueError: an argument is out of range, there is no canary, or one is no longer than the
            prefix or has a word that the model does not know.
        ModelError: the model's distribution is not finite.

    Example:
        >>> from vestige import TableModel
        >>> model = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
        >>> found = complete(model, [Canary("w2 w3", "given", (), 5)])
        >>> found.rate().count, found.attempts[0]["prefix_needed"]
        (1, 0)
    """
    _validate.at_least(1, prefix=prefix, beam=beam, canaries=len(canaries))
    _validate.open_fraction(confidence=confidence)
    texts = [_text(model, canary, number, prefix) for number, canary in enumerate(canaries, 1)]
    for text in [text for text in texts if text["kind"] == CANARY]:
        if (other := shuffled(text["tokens"])) is not None:
            phrase = model.vocabulary.decode(other)
            texts.append({**text, "kind": SHUFFLED, "tokens": list(other), "phrase": phrase})

    done = 0
    for block in _blocks(texts, beam):
        ids = [text["tokens"] for text in block]
        found = attempts(model, ids, prefix=prefix, beam=beam)
        for text, attempt in zip(block, found, strict=True):
            place = attempt["beam_place"]
            text |= {**attempt, "beam_best": place == 1, "beam_kept": place is not None}
        done += len(block)
        if progress is not None:
            progress(done, len(texts))
    return Completion(attempts=tuple(texts), prefix=prefix, beam=beam, confidence=confidence)


def _blocks(texts: Sequence[dict[str, Any]], beam: int) -> Iterator[list[dict[str, Any]]]:
    """The longest texts first, as many as there is room for; a beam needs texts of one length."""

    def length(text: Row) -> int:
        return -len(text["tokens"])

    ordered, room = sorted(texts, key=length), max(1, _ROWS // beam)
    groups = [ordered] if beam == 1 else [list(group) for _, group in groupby(ordered, length)]
    for group in groups:
        for first in range(0, len(group), room):
            yield group[first : first + room]


def _text(model: NextToken, canary: Canary, number: int, prefix: int) -> dict[str, Any]:
    """A canary before it is tried; an error names its number, since its words are secret."""
    ids = canary.ids or tuple(model.vocabulary.encode(canary.phrase))
    if model.vocabulary.unk_id in ids:
        raise ValueError(
            f"canaries must have only words of the model's vocabulary, canary {number} has "
            f"{sum(token == model.vocabulary.unk_id for token in ids)} others"
        )
    if not all(0 <= token < model.vocab_size for token in ids):
        raise ValueError(
            f"canaries must have ids below {model.vocab_size}, canary {number} has {max(ids)}"
        )
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
