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
from typing import Literal, NamedTuple

from vestige.metrics.estimates import Estimate, Interval
from vestige.reports.words import listed

Kind = Literal[
    "undefended", "helps", "unclear", "none", "worse", "incomparable", "unmeasured", "too few",
    "useless",
]  # fmt: skip
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

NEEDED = f"verdict needs {FEWEST} trainings of each, with different seeds (train --seeds)."
UNJUDGED = "No defence can be judged"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a defence differs from the undefended training; None for what was not measured."""

    name: str
    trainings: tuple[int, int] = (FEWEST, FEWEST)  # undefended ones, and of this
    change: Estimate | None = None  # in exposure, mean over planted canaries, in bits
    stuck: tuple[int, int] = (0, 0)  # canaries at the ceiling in all of these trainings; and all
    order: Estimate | None = None  # change in exposure above that of the words in another order
    ratio: Estimate | None = None  # of test perplexities
    tokens: float | None = None  # ratio of tokens read in training
    memory: float | None = None  # ratio of peak memory
    useless: str = ""  # a warning if one of the two predicts no better than word frequencies
    gap: Estimate | None = None  # loss of users with few samples above those with many, in points
    guarantee: str = ""  # claimed, such as "ε = 4.9 at δ = 1e-5 per sequence"
    broken: float | None = None  # a measured ε that refutes the claim


class Verdict(NamedTuple):
    """The verdict on one defence: its kind, a few words, and a sentence with the numbers."""

    kind: Kind
    short: str
    sentence: str


UNDEFENDED = Verdict("undefended", "undefended", "The others are compared with this one.")

Judged = Sequence[tuple[Difference, Verdict]]


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
        return Verdict("too few", "no verdict: too few trainings", _too_few(one, one.change))
    leak, leaks = _direction(one.change), _leaks(one.change) + _ceiling(one)
    if one.stuck[1] and one.stuck[0] == one.stuck[1]:
        return Verdict("unmeasured", "leakage above the ceiling", f"{leaks}.")
    if one.ratio is None:
        told = f"{leaks}; its utility was not measured, so there is no verdict."
        return Verdict("unmeasured", "utility not measured", told)
    use, amount = _utility(one.ratio, tolerance), _percent(one.ratio.value)
    if (leak == "less" and use == "worse") or (leak != "less" and use == "better"):
        size = f"{abs(100 * (one.ratio.value - 1)):.0f}%"
        why = ", which less training alone can explain" if leak == "less" else ""
        told = (
            f"Not comparable: its test perplexity is {size} "
            f"{'higher' if one.ratio.value > 1 else 'lower'}; {100 * tolerance:g}% is allowed. "
            f"{leaks}{why}."
        )
        return Verdict("incomparable", "not comparable", told)
    between = " to ".join(map(_percent, one.ratio.interval))
    told = (
        leaks
        + {
            "same": f" at the same test perplexity ({amount}).",
            "unclear": f"; its test perplexity may or may not be the same ({amount}; {between}).",
            "worse": f" at a higher test perplexity ({amount}).",
            "better": f" at a lower test perplexity ({amount}).",
        }[use]
    )
    if leak == "more":
        return Verdict("worse", "leaks more", told)
    if leak == "same":
        worse = ", worse utility" if use == "worse" else ""
        return Verdict("none", f"no measurable difference{worse}", told)
    told = " ".join([told, *_caveats(one)])
    if use == "unclear":
        return Verdict("unclear", "leaks less, utility unclear", told)
    short = "leaks less at the same utility" if use == "same" else "leaks less, predicts better"
    return Verdict("helps", f"{short}, at a price" if _prices(one) else short, told)


def answer(
    measured: Judged, *, best: str | None, ties: Sequence[str] = (), leaks: bool | None
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
        told.append(f"Its leakage does not differ significantly from {listed(ties)}.")
    if best is None and leaks is not False:
        told += _trades(measured)
    return tuple(told + _guarantees(measured))


def _percent(ratio: float) -> str:
    """A ratio as a signed difference: "+23.4%"."""
    return f"{100 * (ratio - 1):+.1f}%"


def _direction(change: Estimate) -> str:
    """What the interval shows: "less", "more", or "same" if it contains 0."""
    low, high = change.interval
    return "less" if high < 0 else "more" if low > 0 else "same"


def _utility(ratio: Estimate, tolerance: float) -> str:
    """What the interval shows: "same", "better", "worse" or "unclear"."""
    low, high = ratio.interval
    least, most = 1 / (1 + tolerance), 1 + tolerance
    if least <= low and high <= most:
        return "same"
    return "better" if high < least else "worse" if low > most else "unclear"


def _leaks(change: Estimate) -> str:
    leak, (low, high) = _direction(change), change.interval
    if leak == "same":
        amount = f"{change.value:+.1f} bits ({low:.1f} to {high:.1f})"
        return f"No measurable difference in leakage: {amount}"
    return f"Leaks {abs(change.value):.1f} bits {leak}{_size(change.interval)}"


def _size(interval: Interval) -> str:
    """An interval that excludes 0, without its sign."""
    low, high = sorted(map(abs, interval))
    return f" ({low:.1f} to {high:.1f})"


def _ceiling(one: Difference) -> str:
    number, planted = one.stuck
    if not number:
        return ""
    which = f"{number} of the {planted}" if number < planted else f"all {planted}"
    return (
        f" (up to the ceiling: {which} canaries are more probable than every reference in all of "
        "these trainings)"
    )


def _too_few(one: Difference, change: Estimate) -> str:
    seen = [f"exposure {change.value:+.1f} bits"]
    seen += [] if one.ratio is None else [f"test perplexity {_percent(one.ratio.value)}"]
    base, own = one.trainings
    return (
        f"No verdict: {' and '.join(seen)}, from {base} training{'s' * (base != 1)} undefended and "
        f"{own} defended. Trainings with different seeds also differ. A {NEEDED}"
    )


def _caveats(one: Difference) -> list[str]:
    """Caveats of a defence that leaks less."""
    found, prices = [], _prices(one)
    if one.order is not None and one.order.interval.high >= 0:
        found.append(
            "Other orders of the canaries' words lose as much: perhaps it unlearned only words."
        )
    return [*found, f"It costs {listed(prices)}."] if prices else found


def _prices(one: Difference) -> list[str]:
    ratios = ((one.tokens, "tokens"), (one.memory, "memory"))
    found = [f"{n:.1f} times the {what}" for n, what in ratios if n is not None and n >= COST_RATIO]
    if one.gap is not None and one.gap.interval.low > 0:
        low, high = one.gap.interval
        found.append(
            f"users with few samples {low:.1f} to {high:.1f} points of perplexity more than those "
            "with many"
        )
    return found


def _finding(measured: Judged, best: str | None, leaks: bool | None) -> list[str]:
    for one, verdict in measured:
        if one.name == best and one.change is not None and one.ratio is not None:
            use = "and predicts better" if "better" in verdict.short else "at equal utility"
            less = f"{abs(one.change.value):.1f} bits{_size(one.change.interval)}{_ceiling(one)}"
            amount = f"test perplexity {_percent(one.ratio.value)}"
            return [f"{best} lowers exposure by {less} {use} ({amount}).", *_caveats(one)]
    if leaks is False:
        return [
            "No defence is needed on this evidence: the undefended training shows no leak of these "
            "canaries, so no defence can be shown to help."
        ]
    kinds = {verdict.kind for _, verdict in measured}
    if kinds == {"useless"}:
        sentences = dict.fromkeys(verdict.sentence for _, verdict in measured)
        return [f"{UNJUDGED}: a compared model is too weak to audit.", *sentences]
    if kinds == {"too few"}:
        return [f"{UNJUDGED}: a {NEEDED}"]
    if kinds == {"unmeasured"} and any(one.stuck[0] for one, _ in measured):
        return [
            f"{UNJUDGED}: the canaries are more probable than every reference in all trainings.",
            "Plant fewer copies, or train for fewer epochs.",
        ]
    if kinds == {"unmeasured"}:
        return [f"{UNJUDGED}: leakage and utility were not both measured."]
    return ["No defence is shown to lower exposure at equal utility."]


def _trades(measured: Judged) -> list[str]:
    """Defences that leak less at another utility, and how to compare them."""
    found = [
        f"{one.name} ({_percent(one.ratio.value)})"
        for one, verdict in measured
        if verdict.kind in ("incomparable", "unclear") and one.change and one.ratio
        if _direction(one.change) == "less"
    ]
    if not found:
        return []
    return [
        f"{listed(found)} leak{'s' * (len(found) == 1)} less, but at another test perplexity: "
        "compare with an undefended training stopped there (--stop-at-perplexity)."
    ]


def _guarantees(measured: Judged) -> list[str]:
    broken = [
        f"{one.name} claims {one.guarantee}, but at least {one.broken:.2f} was measured: the "
        "guarantee does not hold."
        for one, _ in measured
        if one.broken is not None
    ]
    claims = [f"{d.name} ({d.guarantee})" for d, _ in measured if d.guarantee and d.broken is None]
    if not claims:
        return broken
    only = "Only " if len(claims) < len(measured) else ""
    verb = "comes" if len(claims) == 1 else "come"
    return [f"{only}{listed(claims)} {verb} with a guarantee.", *broken]
