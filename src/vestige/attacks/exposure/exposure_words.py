"""What do the numbers of an exposure come to? The number first, then what it does not say."""

from vestige.attacks.exposure.exposed_canary import Group, Median
from vestige.attacks.exposure.exposure_tests import Evidence

_AMONG = {
    "references": "among phrases that could have stood in their place",
    "controls": "against the controls, which stand out among the references themselves",
    "orders": "among the orders of their own words",
    "controls' orders": "against how the orders of the controls' words rank",
}


NOT_DRAWN = (
    " Their words were not drawn as the references' were: a model that never read them may prefer "
    "them, too, and is what to compare with."
)


def verdict(
    planted: Group, controls: Group, known: Evidence, order: Evidence | None, *, drawn: bool
) -> str:
    """What the numbers come to, and what they do not say.

    Args:
        planted: all planted canaries.
        controls: those never planted.
        known: whether the planted ones are remembered.
        order: whether their order is; None where that was not asked.
        drawn: whether the planted ones' words were drawn at random, as references are.
    """
    means = (
        f"{_bits(planted.exposure)} for the planted canaries, {_bits(controls.exposure)} for those "
        f"never planted (medians; {_p(known)})"
    )
    if not known.possible:
        return (
            f"{_capital(means)}: {_canaries(planted.canaries)} cannot tell whether the model "
            f"remembers {_them(planted)}, since the least p-value that this could have given is "
            f"{known.least:.2g}. Plant more canaries{_more(known)}."
        )
    if not known.shown:
        return (
            f"{_capital(means)}: no memory of the canaries shows. It does not follow that there "
            "is none: more canaries would show weaker memory."
        )
    alone = f", {known.alone} of {planted.canaries} by themselves" if known.alone else ""
    return f"{_capital(means)}: {_order(planted, order, alone)}{'' if drawn else NOT_DRAWN}"


def resolution(planted: Group, space: str, ceiling: float, references: int) -> str:
    """What the ranks resolve, and what would resolve more."""
    if space != "sampled":
        return "Every phrase of the space was scored, so that ranks are exact."
    if not planted.at_ceiling:
        return (
            f"No planted canary stands at the ceiling of {ceiling:.1f} bits: the ranks resolve "
            "them all."
        )
    return (
        f"{planted.at_ceiling} of {planted.canaries} planted canaries are likelier than all "
        f"{references:,} references: what is known of them is a bound (≥), with 97.5 % "
        "confidence. More references raise it, and exact ranks count where they can."
    )


def written(middle: Median | None, digits: int = 2) -> str:
    """A median as a cell of a table: with ≥ where it is a bound, "" where there is none."""
    return "" if middle is None else f"{'≥ ' if middle.bound else ''}{middle.value:.{digits}f}"


def _order(planted: Group, order: Evidence | None, alone: str) -> str:
    words = "the model knows the words of the canaries" + alone
    if order is None:
        return (
            f"{words}. Whether it knows their order cannot be asked: it was given, or there is no "
            "other."
        )
    if not order.possible:
        return (
            f"{words}. Whether it knows their order {_canaries(planted.canaries)} cannot tell: "
            f"{_AMONG[order.against]} the least p-value is {order.least:.2g}. Plant "
            f"{'more or longer ones' if order.against == 'orders' else 'more, with more controls'}."
        )
    if not order.shown:
        return (
            f"{words}. That it knows their order is not shown ({_p(order)}), nor that it does not."
        )
    return (
        f"the model remembers the canaries{alone}, and their order ({_p(order)}). It does not "
        "follow that it says them: `vestige complete` tries that."
    )


def _bits(middle: Median | None) -> str:
    if middle is None:
        return "nothing known"
    ends = middle.interval
    inside = "" if ends is None or middle.bound else f" ({ends.low:.1f} to {ends.high:.1f})"
    return f"{written(middle, 1)} bits{inside}".replace("inf", "more")


def _p(found: Evidence) -> str:
    p = f"{found.p:.2g}" if found.p >= 1e-3 else f"{found.p:.0e}"
    return f"p = {p} {_AMONG[found.against]}"


def _canaries(number: int) -> str:
    return "1 canary" if number == 1 else f"{number} canaries"


def _them(planted: Group) -> str:
    return "it" if planted.canaries == 1 else "them"


def _more(known: Evidence) -> str:
    return " and controls" if known.against == "controls" else ", or compare with more phrases"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
