"""Verdicts on defences from intervals of leakage and utility.

A sentence states a difference if its interval excludes 0, and equal utility if the interval of the
perplexity ratio lies within the tolerance (Schuirmann 1987, two one-sided tests): a difference that
is not significant is not equality. A defence with worse predictions never counts as protection,
because an undefended training that stopped earlier might leak as little.

Trainings that differ only in their seed differ in leakage, so a single training of each defence
gets numbers and no verdict.
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
"""Least number of trainings of each defence, with different seeds, for a verdict."""

COST_RATIO = 1.1
"""Least ratio of tokens or memory that is reported as a cost."""

NEEDED = f"verdict needs {FEWEST} trainings of each, with different seeds (train --seeds)."
UNJUDGED = "No defence can be judged"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a defence differs from the undefended training; None for what was not measured.

    Attributes:
        name: of the defended trainings.
        trainings: number of undefended trainings, and of trainings with this defence.
        exposure: change in mean exposure of the planted canaries, in bits.
        saturated: number of canaries at the ceiling in all of these trainings, and of all canaries.
        exposure_over_shuffled: change in exposure beyond that of the same words in another order.
        perplexity_ratio: of the test text.
        tokens_ratio: of tokens read in training.
        memory_ratio: of peak memory.
        useless: a warning if one of the two predicts no better than word frequencies.
        gap: loss of users with few samples minus that of users with many, in perplexity points.
        guarantee: the claim, such as "ε = 4.9 at δ = 1e-5 per sequence".
        refuting_epsilon: a measured ε that refutes the claim.
    """

    name: str
    trainings: tuple[int, int] = (FEWEST, FEWEST)
    exposure: Estimate | None = None
    saturated: tuple[int, int] = (0, 0)
    exposure_over_shuffled: Estimate | None = None
    perplexity_ratio: Estimate | None = None
    tokens_ratio: float | None = None
    memory_ratio: float | None = None
    useless: str = ""
    gap: Estimate | None = None
    guarantee: str = ""
    refuting_epsilon: float | None = None


class Verdict(NamedTuple):
    """The verdict on one defence: its kind, a few words, and a sentence with the numbers."""

    kind: Kind
    short: str
    sentence: str


UNDEFENDED = Verdict("undefended", "undefended", "The others are compared with this one.")

Judged = Sequence[tuple[Difference, Verdict]]


def judge(difference: Difference, *, tolerance: float) -> Verdict:
    """The verdict that the intervals support for one defence.

    Args:
        difference: from the undefended training.
        tolerance: relative difference in test perplexity that counts as equal, such as 0.05.

    Example:
        >>> less = Difference(name="a", exposure=Estimate("", -3.0, -4.0, -2.0),
        ...                   perplexity_ratio=Estimate("", 1.0, 0.99, 1.01))
        >>> print(judge(less, tolerance=0.05).sentence)
        Leaks 3.0 bits less (2.0 to 4.0) at the same test perplexity (+0.0%).
    """
    exposure, ratio = difference.exposure, difference.perplexity_ratio
    if difference.useless:
        return Verdict("useless", "no better than word frequencies", difference.useless)
    if exposure is None:
        return Verdict("unmeasured", "leakage not measured", "Its leakage was not measured.")
    if min(difference.trainings) < FEWEST:
        return Verdict("too few", "no verdict: too few trainings", _too_few(difference, exposure))
    leakage = _leakage(exposure) + _ceiling(difference)
    saturated, canaries = difference.saturated
    if canaries and saturated == canaries:
        return Verdict("unmeasured", "leakage above the ceiling", f"{leakage}.")
    if ratio is None:
        sentence = f"{leakage}; its utility was not measured, so there is no verdict."
        return Verdict("unmeasured", "utility not measured", sentence)
    direction, utility = _direction(exposure), _utility(ratio, tolerance)
    if (direction == "less" and utility == "worse") or (
        direction != "less" and utility == "better"
    ):
        sentence = _incomparable(ratio, leakage, direction, tolerance)
        return Verdict("incomparable", "not comparable", sentence)
    sentence = leakage + _at_perplexity(ratio, utility)
    if direction == "more":
        return Verdict("worse", "leaks more", sentence)
    if direction == "same":
        worse = ", worse utility" if utility == "worse" else ""
        return Verdict("none", f"no measurable difference{worse}", sentence)
    sentence = " ".join([sentence, *_caveats(difference)])
    if utility == "unclear":
        return Verdict("unclear", "leaks less, utility unclear", sentence)
    short = "leaks less at the same utility" if utility == "same" else "leaks less, predicts better"
    return Verdict("helps", f"{short}, at a price" if _costs(difference) else short, sentence)


def answer(
    judged: Judged, *, best: str | None, ties: Sequence[str] = (), leaks: bool | None
) -> tuple[str, ...]:
    """Which defence to use: the finding in one sentence, then the rest.

    Args:
        judged: every defence and its verdict.
        best: the recommended defence, or None if none helps.
        ties: other defences that help, with leakage not significantly different from the best.
        leaks: whether the undefended training leaks measurably; None if unknown.
    """
    sentences = _finding(judged, best, leaks)
    if ties:
        sentences.append(f"Its leakage does not differ significantly from {listed(ties)}.")
    if best is None and leaks is not False:
        sentences += _other_utility(judged)
    return tuple(sentences + _guarantees(judged))


def _percent(ratio: float) -> str:
    """A ratio as a signed difference: "+23.4%"."""
    return f"{100 * (ratio - 1):+.1f}%"


def _direction(exposure: Estimate) -> str:
    """What the interval shows: "less", "more", or "same" if it contains 0."""
    low, high = exposure.interval
    return "less" if high < 0 else "more" if low > 0 else "same"


def _utility(ratio: Estimate, tolerance: float) -> str:
    """What the interval shows: "same", "better", "worse" or "unclear"."""
    low, high = ratio.interval
    least, most = 1 / (1 + tolerance), 1 + tolerance
    if least <= low and high <= most:
        return "same"
    return "better" if high < least else "worse" if low > most else "unclear"


def _leakage(exposure: Estimate) -> str:
    direction, (low, high) = _direction(exposure), exposure.interval
    if direction == "same":
        bits = f"{exposure.value:+.1f} bits ({low:.1f} to {high:.1f})"
        return f"No measurable difference in leakage: {bits}"
    return f"Leaks {abs(exposure.value):.1f} bits {direction}{_unsigned(exposure.interval)}"


def _unsigned(interval: Interval) -> str:
    """An interval that excludes 0, without its sign."""
    low, high = sorted(map(abs, interval))
    return f" ({low:.1f} to {high:.1f})"


def _ceiling(difference: Difference) -> str:
    saturated, canaries = difference.saturated
    if not saturated:
        return ""
    which = f"{saturated} of the {canaries}" if saturated < canaries else f"all {canaries}"
    return (
        f" (up to the ceiling: {which} canaries are more probable than every reference in all of "
        "these trainings)"
    )


def _incomparable(ratio: Estimate, leakage: str, direction: str, tolerance: float) -> str:
    size = f"{abs(100 * (ratio.value - 1)):.0f}%"
    higher = "higher" if ratio.value > 1 else "lower"
    reason = ", which less training alone can explain" if direction == "less" else ""
    return (
        f"Not comparable: its test perplexity is {size} {higher}; {100 * tolerance:g}% is allowed. "
        f"{leakage}{reason}."
    )


def _at_perplexity(ratio: Estimate, utility: str) -> str:
    change, interval = _percent(ratio.value), " to ".join(map(_percent, ratio.interval))
    return {
        "same": f" at the same test perplexity ({change}).",
        "unclear": f"; its test perplexity may or may not be the same ({change}; {interval}).",
        "worse": f" at a higher test perplexity ({change}).",
        "better": f" at a lower test perplexity ({change}).",
    }[utility]


def _too_few(difference: Difference, exposure: Estimate) -> str:
    ratio, (undefended, defended) = difference.perplexity_ratio, difference.trainings
    numbers = [f"exposure {exposure.value:+.1f} bits"]
    numbers += [] if ratio is None else [f"test perplexity {_percent(ratio.value)}"]
    return (
        f"No verdict: {' and '.join(numbers)}, from {undefended} "
        f"training{'s' * (undefended != 1)} undefended and {defended} defended. Trainings with "
        f"different seeds also differ. A {NEEDED}"
    )


def _caveats(difference: Difference) -> list[str]:
    """Caveats of a defence that leaks less."""
    caveats = list[str]()
    over_shuffled = difference.exposure_over_shuffled
    if over_shuffled is not None and over_shuffled.interval.high >= 0:
        caveats.append(
            "Other orders of the canaries' words lose as much: perhaps it unlearned only words."
        )
    if costs := _costs(difference):
        caveats.append(f"It costs {listed(costs)}.")
    return caveats


def _costs(difference: Difference) -> list[str]:
    ratios = ((difference.tokens_ratio, "tokens"), (difference.memory_ratio, "memory"))
    costs = [
        f"{ratio:.1f} times the {name}"
        for ratio, name in ratios
        if ratio is not None and ratio >= COST_RATIO
    ]
    if difference.gap is not None and difference.gap.interval.low > 0:
        low, high = difference.gap.interval
        costs.append(
            f"users with few samples {low:.1f} to {high:.1f} points of perplexity more than those "
            "with many"
        )
    return costs


def _finding(judged: Judged, best: str | None, leaks: bool | None) -> list[str]:
    for difference, verdict in judged:
        exposure, ratio = difference.exposure, difference.perplexity_ratio
        if difference.name == best and exposure is not None and ratio is not None:
            utility = "and predicts better" if "better" in verdict.short else "at equal utility"
            bits = f"{abs(exposure.value):.1f} bits{_unsigned(exposure.interval)}"
            perplexity = f"(test perplexity {_percent(ratio.value)})"
            sentence = (
                f"{best} lowers exposure by {bits}{_ceiling(difference)} {utility} {perplexity}."
            )
            return [sentence, *_caveats(difference)]
    if leaks is False:
        return [
            "No defence is needed on this evidence: the undefended training shows no leak of these "
            "canaries, so no defence can be shown to help."
        ]
    kinds = {verdict.kind for _, verdict in judged}
    if kinds == {"useless"}:
        sentences = dict.fromkeys(verdict.sentence for _, verdict in judged)
        return [f"{UNJUDGED}: a compared model is too weak to audit.", *sentences]
    if kinds == {"too few"}:
        return [f"{UNJUDGED}: a {NEEDED}"]
    if kinds == {"unmeasured"} and any(difference.saturated[0] for difference, _ in judged):
        return [
            f"{UNJUDGED}: the canaries are more probable than every reference in all trainings.",
            "Plant fewer copies, or train for fewer epochs.",
        ]
    if kinds == {"unmeasured"}:
        return [f"{UNJUDGED}: leakage and utility were not both measured."]
    return ["No defence is shown to lower exposure at equal utility."]


def _other_utility(judged: Judged) -> list[str]:
    """Defences that leak less at another perplexity, and how to compare them."""
    names = [
        f"{difference.name} ({_percent(difference.perplexity_ratio.value)})"
        for difference, verdict in judged
        if verdict.kind in ("incomparable", "unclear")
        if difference.exposure and difference.perplexity_ratio
        if _direction(difference.exposure) == "less"
    ]
    if not names:
        return []
    return [
        f"{listed(names)} leak{'s' * (len(names) == 1)} less, but at another test perplexity: "
        "compare with an undefended training stopped there (--stop-at-perplexity)."
    ]


def _guarantees(judged: Judged) -> list[str]:
    refuted = [
        f"{difference.name} claims {difference.guarantee}, but at least "
        f"{difference.refuting_epsilon:.2f} was measured: the guarantee does not hold."
        for difference, _ in judged
        if difference.refuting_epsilon is not None
    ]
    guaranteed = [
        f"{difference.name} ({difference.guarantee})"
        for difference, _ in judged
        if difference.guarantee and difference.refuting_epsilon is None
    ]
    if not guaranteed:
        return refuted
    only = "Only " if len(guaranteed) < len(judged) else ""
    verb = "comes" if len(guaranteed) == 1 else "come"
    return [f"{only}{listed(guaranteed)} {verb} with a guarantee.", *refuted]
