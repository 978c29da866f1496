r"""Completion of canaries by a model that is given their beginnings.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL, arXiv:2103.07567, section 3 (the tab attack): the first token goes in
at the beginning of a text, the model goes on, and the whole rest of the canary has to come out.

Differs from the paper: the prefix may be longer; beside greedy decoding there is a beam search;
the shortest prefix that is enough is told; canaries that were never planted, and the words of
each planted one in another order, stand beside; and every rate has its interval. Each canary is
judged by itself, although a model goes on in one way only: of canaries that share their prefix,
greedy decoding completes one at most, so that rates speak of canaries whose prefixes differ.
With subword models the prefix counts tokens, and the first token may be less than a word.

The claim asks how probable so many completions are for a model that never read the canaries. Two
bounds are taken together (the smaller p-value, doubled): Fisher's exact test against the controls,
and, of canaries whose words stand in an order drawn at random, the chance 1 / m! of that order of m
words behind the prefix, whatever the model (Poisson binomial, `metrics.tests`). "No leak
shown" excludes a share of `claims.effects`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from math import factorial
from statistics import median_low

import torch
from scipy.stats import hypergeom
from torch.nn.utils.rnn import pad_sequence

from vestige import _validate, claims
from vestige.attacks.exposure.continuations import best_continuations, read_through
from vestige.attacks.exposure.exposure_tests import DRAWN, LEVEL
from vestige.claims import Check, Claim
from vestige.claims.effects import COMPLETED_SHARE
from vestige.data.canary import Canary
from vestige.data.shuffled_controls import shuffled
from vestige.metrics.estimates import Estimate
from vestige.metrics.rates import rate, rates_by
from vestige.metrics.tests import at_least
from vestige.models.protocols import NextToken
from vestige.results import Measurement

CANARY, CONTROL, SHUFFLED = "canary", "control", "shuffled"
"""Planted; made alike and never planted; a planted one's tokens in another order."""

_ROWS = 1024
"""Continuations followed at once: a row of a large model's state is a megabyte."""

Progress = Callable[[int, int], None]
"""Called with (texts done, texts in all)."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Completion of one text from its beginning.

    Attributes:
        kind: "canary", "control" (never planted) or "shuffled" (a canary in another order).
        canary: number of the canary, from 1, in the order given.
        tokens: ids.
        phrase: their text.
        pattern: of the canary.
        user: whose the canary is, or "".
        copies: of the canary in the training text; a shuffled control has its canary's number.
        greedy: the likeliest token, time after time, gives the whole rest.
        beam_best: the rest is the best continuation that the beam found.
        beam_kept: it is among those that the beam kept.
        beam_place: its place among them, 1 for the best; None where it is not kept.
        prefix_needed: tokens of the shortest prefix from which greedy decoding gives the rest;
            0 where the model says all of it unasked, None where only the whole text is enough.
        log_prob: natural log-probability of the rest after the prefix.
        chance: the most with which greedy decoding says the rest of a canary that was never read;
            1 where nothing bounds it.
    """

    kind: str
    canary: int
    copies: int
    pattern: str
    user: str
    phrase: str
    tokens: tuple[int, ...]
    greedy: bool = False
    beam_best: bool = False
    beam_kept: bool = False
    beam_place: int | None = None
    prefix_needed: int | None = None
    log_prob: float = -float("inf")
    chance: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Completion(Measurement):
    """Completion of canaries and controls by a model.

    Attributes:
        attempts: the canaries as they were given, then the shuffled controls.
        prefix: tokens of each text that the model was given.
        beam: continuations that the beam search kept.
        confidence: of the intervals.
        checks: of the model and of what it could read, made by a workflow; a verdict takes them.
    """

    attempts: tuple[Attempt, ...]
    prefix: int
    beam: int
    confidence: float = 0.95
    checks: tuple[Check, ...] = ()

    def rate(self, kind: str = CANARY, *, by: str = "greedy") -> Estimate | None:
        """Estimate of completion of a kind of texts; None where there is none of that kind.

        Args:
            kind: "canary", "control" or "shuffled".
            by: "greedy", "beam_best" or "beam_kept".
        """
        happened = [getattr(one, by) for one in self.attempts if one.kind == kind]
        return rate(happened, confidence=self.confidence)

    def by_copies(self, *, by: str = "greedy") -> dict[int, Estimate]:
        """The planted canaries' rate for each number of copies, fewest first."""
        planted = [one for one in self.attempts if one.kind == CANARY]
        return rates_by(
            [one.copies for one in planted],
            [getattr(one, by) for one in planted],
            confidence=self.confidence,
        )

    @property
    def test(self) -> claims.Test | None:
        """How probable so many completions are for a model that never read the canaries.

        None without planted canaries, or where neither controls nor chance bound it.
        """
        own, never = self.rate(), self.rate(CONTROL)
        if own is None:
            return None
        chances = [one.chance for one in self.attempts if one.kind == CANARY]
        found = []
        if never is not None:
            found.append([_fisher(own.count, own, never), _fisher(own.n, own, never, 0)])
        if min(chances) < 1:
            found.append([at_least(n, chances) for n in (own.count, own.n)])
        if not found:
            return None
        p, least = (min(1.0, len(found) * min(each)) for each in zip(*found, strict=True))
        return claims.Test(p, least, LEVEL, "unplanted canaries or guesses")

    @property
    def claim(self) -> Claim:
        """The verdict, with its test and checks.

        Raises:
            ValueError: no workflow has made the checks of the model.
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
        share = None if own is None else claims.Estimate(
            "completed share of planted canaries", own.value, *own.interval
        )  # fmt: skip
        return Claim("extract canaries", test, (*self.checks, powerful), share)

    @property
    def verdict(self) -> claims.Verdict:
        """What the test and the checks allow to say."""
        return self.claim.verdict

    def summary(self) -> dict[str, object]:
        """One row of a results table; a rate is None where there is nothing to count."""
        return {**self.claim.summary(), **self.figures()}

    def figures(self) -> dict[str, object]:
        """The summary without the verdict: scalars that need no checks."""
        needed = [one.prefix_needed for one in self.attempts if one.kind == CANARY]
        known = [one for one in needed if one is not None]
        return {
            "prefix": self.prefix,
            "beam": self.beam,
            "confidence": self.confidence,
            "canaries": len(needed),
            **_scalars("greedy", self.rate()),
            **_scalars("beam_best", self.rate(by="beam_best")),
            **_scalars("beam_kept", self.rate(by="beam_kept")),
            **_scalars(CONTROL, self.rate(CONTROL)),
            **_scalars(SHUFFLED, self.rate(SHUFFLED)),
            "whole_needed": len(needed) - len(known),
            "median_prefix_needed": median_low(known) if known else None,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a text; `pandas.DataFrame(result.rows())` is the frame."""
        yield from (asdict(one) | {"tokens": list(one.tokens)} for one in self.attempts)


@torch.no_grad()
def complete(
    model: NextToken,
    canaries: Sequence[Canary],
    *,
    prefix: int = 1,
    beam: int = 10,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Completion:
    """Give the model the first tokens of each canary and see whether it says the rest.

    A canary is read from the beginning of a text, as it was trained on. The beam keeps the
    likeliest continuations of the canary's length and never takes the end of a text.

    Args:
        model: any model that tells its next-token distribution.
        canaries: planted ones and controls, each longer than the prefix; one without ids is
            encoded with the model's vocabulary.
        prefix: tokens given, at least 1.
        beam: continuations kept, at least 1.
        confidence: of the intervals, in (0, 1).
        progress: told the texts done and in all.

    Returns:
        one attempt for each canary in their order, then one for each shuffled control.

    Raises:
        ValueError: an argument is out of range, no canary was given, one is no longer than the
            prefix, or has a word that the model does not know.
        ModelError: the model gives numbers that are no probabilities.

    Example:
        >>> from vestige import TableModel
        >>> model = TableModel([0, 0, 0.5, 0.5], [[0, 0, 0, 1]] * 4)
        >>> told = complete(model, [Canary("w2 w3", "given", (), 5)])
        >>> told.rate().count, told.attempts[0].prefix_needed
        (1, 0)
    """
    _validate.at_least(1, prefix=prefix, beam=beam, canaries=len(canaries))
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    texts = [_text(model, canary, n, prefix) for n, canary in enumerate(canaries, 1)]
    for text in texts:
        if len(text.tokens) <= prefix:
            raise ValueError(
                f"prefix must be shorter than every canary, got {prefix}: canary {text.canary} "
                f"has {len(text.tokens)} tokens"
            )
    texts += [other for text in texts if (other := _control(model, text)) is not None]
    attempts = _attempts(model, texts, prefix, beam, progress)
    return Completion(attempts=attempts, prefix=prefix, beam=beam, confidence=confidence)


def _text(model: NextToken, canary: Canary, number: int, prefix: int) -> Attempt:
    """A canary before it is tried; an error tells its number, since its words are secret."""
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
    return Attempt(
        kind=CANARY if canary.planted else CONTROL,
        canary=number,
        tokens=ids,
        phrase=canary.phrase,
        pattern=canary.pattern,
        user=canary.user,
        copies=canary.copies,
        chance=_chance(canary, len(model.vocabulary.decode(ids[:prefix]).split())),
    )


def _chance(canary: Canary, given: int) -> float:
    """Chance of the order in which the words after the first `given` ones stand."""
    words = canary.phrase.split()
    if canary.pattern not in DRAWN or len(set(words)) < len(words):
        return 1.0
    return 1 / factorial(max(0, len(words) - given))


def _control(model: NextToken, text: Attempt) -> Attempt | None:
    """A planted canary's tokens in another order; None where there is none."""
    tokens = shuffled(text.tokens) if text.kind == CANARY else None
    if tokens is None:
        return None
    return replace(text, kind=SHUFFLED, tokens=tokens, phrase=model.vocabulary.decode(tokens))


def _attempts(
    model: NextToken, texts: list[Attempt], prefix: int, beam: int, progress: Progress | None
) -> tuple[Attempt, ...]:
    """As many texts at once as have room, the longest first; for a beam those of one length."""
    done: dict[int, Attempt] = {}
    places = sorted(range(len(texts)), key=lambda place: -len(texts[place].tokens))
    groups = [places]
    if beam > 1:
        groups = [list(of) for _, of in groupby(places, lambda place: len(texts[place].tokens))]
    step = max(1, _ROWS // beam)
    for group in groups:
        for first in range(0, len(group), step):
            block = group[first : first + step]
            tried = _tried(model, [texts[place] for place in block], prefix, beam)
            done.update(zip(block, tried, strict=True))
            if progress is not None:
                progress(len(done), len(texts))
    return tuple(done[place] for place in range(len(texts)))


def _tried(model: NextToken, texts: list[Attempt], prefix: int, beam: int) -> Iterator[Attempt]:
    """Texts, the longest first, read once with their own tokens and once by the beam."""
    tokens = pad_sequence([torch.tensor(text.tokens) for text in texts], batch_first=True)
    tokens = tokens.to(model.device)
    lengths = torch.tensor([len(text.tokens) for text in texts], device=model.device)
    read = read_through(model, tokens, lengths)
    rests = read.log_probs[:, prefix:].double().sum(1)
    if beam == 1:  # greedy decoding, which never takes the end of a text
        behind = torch.arange(tokens.shape[1], device=model.device) >= lengths[:, None]
        own = ((read.likeliest_word | behind)[:, prefix:].all(1) & rests.isfinite())[:, None]
    else:
        found = best_continuations(model, tokens[:, :prefix], tokens.shape[1] - prefix, width=beam)
        own = (found.tokens == tokens[:, None, prefix:]).all(2) & found.log_prob.isfinite()
    rows = zip(texts, read.likeliest.tolist(), own.tolist(), rests.tolist(), strict=True)
    for text, right, kept, rest in rows:
        right = right[: len(text.tokens)]
        needed = len(right) - next((n for n, one in enumerate(right[::-1]) if not one), len(right))
        place = kept.index(True) + 1 if True in kept else None
        yield replace(
            text,
            greedy=needed <= prefix,
            beam_best=place == 1,
            beam_kept=place is not None,
            beam_place=place,
            prefix_needed=needed if needed < len(right) else None,
            log_prob=rest,
        )


def _fisher(number: int, own: Estimate, never: Estimate, never_said: int | None = None) -> float:
    """Probability that so many or more of all completed ones are canaries."""
    said = number + (never.count if never_said is None else never_said)
    everything = own.n + never.n
    return float(hypergeom.sf(number - 1, everything, said, own.n))


def _scalars(name: str, found: Estimate | None) -> dict[str, object]:
    """A rate as entries of a summary."""
    return {
        f"{name}_completed": found and found.count,
        f"{name}_trials": found.n if found else 0,
        f"{name}_rate": found and found.value,
        f"{name}_low": found and found.low,
        f"{name}_high": found and found.high,
    }
