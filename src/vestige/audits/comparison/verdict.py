"""Verdicts on defences from the intervals of what was measured.

A sentence claims a difference if its interval excludes 0, and equal utility if the interval of the
perplexity ratio lies within the tolerance (Schuirmann 1987, two one-sided tests): a difference that
was not seen is not equality. A defence that predicts worse is never said to protect, because an
undefended training that stopped earlier might leak as little.

Trainings that differ in their seed alone leak differently, so one training of each gets numbers and
no verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vestige.metrics.estimates import Estimate, Interval

Kind = Literal[
    "undefended",
    "helps",
    "unclear",
    "none",
    "worse",
    "incomparable",
    "unmeasured",
    "too few",
    "useless",
]
"""Kinds of verdicts.

- undefended: the training that the others are compared with.
- helps: leaks less at the same perplexity or a lower one.
- unclear: leaks less, but equal perplexity is not shown.
- none: no measurable difference in leakage.
- worse: leaks more.
- incomparable: perplexity differs by more than the tolerance, so leakage cannot be compared.
- unmeasured: leakage or perplexity is missing, or every canary is above the ceiling of ranks.
- useless: it, or the undefended training, predicts no better than word frequencies.
- too few: fewer than `FEWEST` trainings of it or of the undefended one.
"""

FEWEST = 3
"""Trainings of each, with different seeds, from which a verdict is given."""

COST_RATIO = 1.1
"""From this ratio of tokens or memory on, a price is named."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a defence differs from the undefended training; None for what was not measured.

    Attributes:
        name: of the training.
        trainings: number of undefended ones, and of this.
        change: in exposure, mean over planted canaries, in bits.
        stuck: planted canaries more probable than every reference in all of these trainings, which
            show no difference, and all planted canaries.
        order: change in the exposure above that of the same words in another order.
        ratio: of test perplexities.
        tokens: ratio of tokens read in training.
        memory: ratio of peak memory.
        useless: a warning if one of the two predicts no better than word frequencies.
        gap: loss of users with few samples above that of users with many, in points.
        epsilon: claimed.
        guarantee: the claim in words, such as "ε = 4.9 at δ = 1e-5 per sequence".
        broken: a measured epsilon that refutes the claim.
    """

    name: str
    trainings: tuple[int, int] = (FEWEST, FEWEST)
    change: Estimate | None = None
    stuck: tuple[int, int] = (0, 0)
    order: Estimate | None = None
    ratio: Estimate | None = None
    tokens: float | None = None
    memory: float | None = None
    useless: str = ""
    gap: Estimate | None = None
    epsilon: float | None = None
    guarantee: str = ""
    broken: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on one defence.

    Attributes:
        kind: see `Kind`.
        short: a few words, for a table.
        sentence: with the numbers and their intervals.
    """

    kind: Kind
    short: str
    sentence: str


def judge(one: Difference, *, tolerance: float) -> Verdict:
    """The verdict that the intervals support for one defence.

    Args:
        one: the defence.
        tolerance: relative difference in test perplexity that counts as equal, such as 0.05.

    Example:
        >>> less = Difference(name="a", change=Estimate("", -3.0, -4.0, -2.0),
        ...                 ratio=Estimate("", 1.0, 0.99, 1.01))
        >>> print(judge(less, tolerance=0.05).sentence)
        Leaks 3.0 bits less (2.0 to 4.0) at the same test perplexity (+0.0%).
    """
    if one.useless:
        return Verdict("useless", "no better than word frequencies", one.useless)
    if one.change is None:
        return Verdict("unmeasured", "leakage not measured", "Its leakage was not measured.")
    if min(one.trainings) < FEWEST:
        return Verdict("too few", "no verdict: too few trainings", _too_few(one))
    leaks = _leaks(one.change) + _ceiling(one.stuck)
    if one.stuck[1] and one.stuck[0] == one.stuck[1]:
        return Verdict("unmeasured", "leakage above the ceiling", f"{leaks}.")
    if one.ratio is None:
        told = f"{leaks}; its utility was not measured, so there is no verdict."
        return Verdict("unmeasured", "utility not measured", told)
    leak, use = leakage(one.change), _utility(one.ratio, tolerance)
    if (leak == "less" and use == "worse") or (leak != "less" and use == "better"):
        return _incomparable(one.ratio, leak, leaks, tolerance)
    if leak == "less":
        return _less(one, leaks, one.ratio, use)
    told = f"{leaks}{_with(one.ratio, use)}."
    if leak == "more":
        return Verdict("worse", "leaks more", told)
    short = "no measurable difference" + (", worse utility" if use == "worse" else "")
    return Verdict("none", short, told)


def answer(
    measured: Sequence[tuple[Difference, Verdict]],
    *,
    best: str | None,
    ties: Sequence[str] = (),
    leaks: bool | None,
) -> tuple[str, ...]:
    """Which defence to take: the finding in one sentence, then the rest.

    Args:
        measured: every defence and its verdict.
        best: the one to take, or None where none helps.
        ties: other defences that help, with leakage not significantly different from the best.
        leaks: whether the undefended training leaks measurably; None if unknown.
    """
    told = _finding(measured, best, leaks)
    if ties:
        told.append(f"Its leakage does not differ significantly from {_and(list(ties))}.")
    if best is None and leaks is not False:
        told += _trades(measured)
    return tuple(told + _guarantees(measured))


def interval_words(interval: Interval | None, digits: int = 1) -> str:
    """An interval in brackets, ready to follow a number.

    Example:
        >>> interval_words(Interval(-0.52, 2))
        ' (-0.5 to 2.0)'
    """
    if interval is None:
        return ""
    return f" ({interval.low:.{digits}f} to {interval.high:.{digits}f})"


def percent(ratio: float) -> str:
    """A ratio as a signed difference.

    Example:
        >>> percent(1.234), percent(0.96)
        ('+23.4%', '-4.0%')
    """
    return f"{100 * (ratio - 1):+.1f}%"


def leakage(change: Estimate) -> str:
    """Direction that the interval shows: "less", "more", or "same" if it contains 0."""
    return _side(change.interval, 0.0, 0.0, ("less", "same", "more"))


def _utility(ratio: Estimate, tolerance: float) -> str:
    """What the interval shows: "same", "better", "worse" or "unclear"."""
    low, high = 1 / (1 + tolerance), 1 + tolerance
    if low <= ratio.interval.low and ratio.interval.high <= high:
        return "same"
    return _side(ratio.interval, low, high, ("better", "unclear", "worse"))


def _side(interval: Interval, low: float, high: float, names: tuple[str, str, str]) -> str:
    return names[0] if interval.high < low else names[2] if interval.low > high else names[1]


def _leaks(change: Estimate) -> str:
    leak = leakage(change)
    if leak == "same":
        told = f"{change.value:+.1f} bits{interval_words(change.interval)}"
        return f"No measurable difference in leakage: {told}"
    return f"Leaks {abs(change.value):.1f} bits {leak}{_size(change.interval)}"


def _size(interval: Interval) -> str:
    """An interval that excludes 0, without its sign."""
    return interval_words(Interval(*sorted(abs(end) for end in interval)))


def _ceiling(stuck: tuple[int, int]) -> str:
    if not stuck[0]:
        return ""
    which = f"{stuck[0]} of the {stuck[1]}" if stuck[0] < stuck[1] else f"all {stuck[1]}"
    return (
        f" (up to the ceiling: {which} canaries are more probable than every reference in all of "
        "these trainings)"
    )


def _too_few(one: Difference) -> str:
    seen = [] if one.change is None else [f"exposure {one.change.value:+.1f} bits"]
    seen += [] if one.ratio is None else [f"test perplexity {percent(one.ratio.value)}"]
    base, own = one.trainings
    return (
        f"No verdict: {' and '.join(seen)}, from {_trainings(base)} undefended and {own} "
        f"defended. Trainings with different seeds also differ. A {NEEDED}"
    )


NEEDED = f"verdict needs {FEWEST} trainings of each, with different seeds (train --seeds)."
UNJUDGED = "No defence can be judged"


def _trainings(number: int) -> str:
    return "1 training" if number == 1 else f"{number} trainings"


def _with(ratio: Estimate, use: str) -> str:
    amount = percent(ratio.value)
    if use == "same":
        return f" at the same test perplexity ({amount})"
    if use == "unclear":
        between = f"{percent(ratio.interval.low)} to {percent(ratio.interval.high)}"
        return f"; its test perplexity may or may not be the same ({amount}; {between})"
    return f" at a {'higher' if use == 'worse' else 'lower'} test perplexity ({amount})"


def _less(one: Difference, leaks: str, ratio: Estimate, use: str) -> Verdict:
    told = " ".join([f"{leaks}{_with(ratio, use)}.", *_caveats(one)])
    if use == "unclear":
        return Verdict("unclear", "leaks less, utility unclear", told)
    short = "leaks less" + (" at the same utility" if use == "same" else ", predicts better")
    return Verdict("helps", short + (", at a price" if _prices(one) else ""), told)


def _incomparable(ratio: Estimate, leak: str, leaks: str, tolerance: float) -> Verdict:
    more = ratio.value > 1
    told = (
        f"Not comparable: its test perplexity is {abs(100 * (ratio.value - 1)):.0f}% "
        f"{('higher' if more else 'lower')}; {100 * tolerance:g}% is allowed. {leaks}"
    )
    why = ", which less training alone can explain" if leak == "less" else ""
    return Verdict("incomparable", "not comparable", f"{told}{why}.")


def _caveats(one: Difference) -> list[str]:
    """Caveats of a defence that leaks less."""
    words = "Other orders of the canaries' words lose as much: perhaps it unlearned only words."
    found = [] if one.order is None or one.order.interval.high < 0 else [words]
    prices = _prices(one)
    return [*found, f"It costs {_and(prices)}."] if prices else found


def _prices(one: Difference) -> list[str]:
    found = []
    if one.tokens is not None and one.tokens >= COST_RATIO:
        found.append(f"{one.tokens:.1f} times the tokens")
    if one.memory is not None and one.memory >= COST_RATIO:
        found.append(f"{one.memory:.1f} times the memory")
    if one.gap is not None and one.gap.interval.low > 0:
        low, high = one.gap.interval
        found.append(
            f"users with few samples {low:.1f} to {high:.1f} points of perplexity more than those "
            "with many"
        )
    return found


def _finding(
    measured: Sequence[tuple[Difference, Verdict]], best: str | None, leaks: bool | None
) -> list[str]:
    for one, verdict in measured:
        if one.name == best and one.change is not None and one.ratio is not None:
            better = "predicts better" in verdict.short
            use = "and predicts better" if better else "at equal utility"
            size = f"{abs(one.change.value):.1f} bits{_size(one.change.interval)}"
            less = size + _ceiling(one.stuck)
            amount = f"test perplexity {percent(one.ratio.value)}"
            return [f"{best} lowers exposure by {less} {use} ({amount}).", *_caveats(one)]
    if leaks is False:
        return [
            "No defence is needed on this evidence: the undefended training shows no leak of these "
            "canaries, so no defence can be shown to help."
        ]
    useless = [verdict.sentence for _, verdict in measured if verdict.kind == "useless"]
    if useless and len(useless) == len(measured):
        return [f"{UNJUDGED}: a compared model is too weak to audit.", *dict.fromkeys(useless)]
    if all(verdict.kind == "too few" for _, verdict in measured):
        return [f"{UNJUDGED}: a {NEEDED}"]
    if all(verdict.kind == "unmeasured" for _, verdict in measured):
        if any(one.stuck[0] for one, _ in measured):
            return [
                f"{UNJUDGED}: the canaries are more probable than every reference in all "
                "trainings.",
                "Plant fewer copies, or train for fewer epochs.",
            ]
        return [f"{UNJUDGED}: leakage and utility were not both measured."]
    return ["No defence is shown to lower exposure at equal utility."]


def _trades(measured: Sequence[tuple[Difference, Verdict]]) -> list[str]:
    """Defences that leak less at another utility, and how to compare them."""
    found = [
        one
        for one, verdict in measured
        if verdict.kind in ("incomparable", "unclear")
        and one.change is not None
        and leakage(one.change) == "less"
    ]
    if not found:
        return []
    names = _and([f"{one.name} ({percent(one.ratio.value)})" for one in found if one.ratio])
    verb = "leak" if len(found) > 1 else "leaks"
    return [
        f"{names} {verb} less, but at another test perplexity: compare with an undefended "
        "training stopped there (--stop-at-perplexity)."
    ]


def _guarantees(measured: Sequence[tuple[Difference, Verdict]]) -> list[str]:
    broken = [
        f"{one.name} claims {one.guarantee}, but at least {one.broken:.2f} was measured: the "
        "guarantee does not hold."
        for one, _ in measured
        if one.broken is not None
    ]
    claimed = [one for one, _ in measured if one.epsilon is not None and one.broken is None]
    if not claimed:
        return broken
    what = _and([f"{one.name} ({one.guarantee})" for one in claimed])
    only = "Only " if len(claimed) < len(measured) else ""
    verb = "comes" if len(claimed) == 1 else "come"
    return [f"{only}{what} {verb} with a guarantee.", *broken]


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
