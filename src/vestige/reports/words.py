"""Numbers, keys and values of summaries and records as text."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vestige.reports.disclosure import ID_KEYS, SECRET_KEYS, is_secret, printable, redact

NOTHING = "–"
Row = Mapping[str, Any]
"""A row of a run, or its summary."""
Facts = tuple[tuple[str, str], ...]
_MAX_ITEMS = 12  # entries of a list
_HASH = re.compile("[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_WORDS = {
    "ablated_frequent": "frequent words, with silent units",
    "accuracy_by_chance": "whole secrets by chance",
    "alone": "canaries significant by themselves",
    "at_least": "used, at least",
    "at_most": "used, at most",
    "ceiling": "largest exposure that the references resolve",
    "called": "users flagged",
    "certainty_among": "certainty is a share of",
    "chance_probability": "probability of such ranks by chance",
    "counted": "word frequencies from",
    "created": "made on",
    "delta": "δ",
    "drop": "end of a phrase after a loss of",
    "drawn": "random secrets never planted",
    "effective_runs": "effective sample size of the estimate",
    "empirical_ceiling": "largest ε that could be measured",
    "empirical_epsilon": "measured ε, at least",
    "epsilon": "ε",
    "exact_asked": "canaries ranked exactly",
    "exact_decided": "canaries decided by an exact rank",
    "expected_by_chance": "exposure by chance",
    "hamming_by_chance": "words wrong by chance",
    "in_beam": "found by the search",
    "in_part": "known in part",
    "how": "queries chosen by",
    "joint": "score above which a phrase is split",
    "keep": "checkpoint kept",
    "least_p_value": "smallest p-value",
    "level": "significance level",
    "low_drop": "loss of users with fewest documents",
    "max_grad_norm": "gradient norm clipped at",
    "mu": "μ of Gaussian differential privacy",
    "named": "texts flagged",
    "order_probability": "probability against other word orders",
    "orders": "random orders of silent units",
    "p_least": "smallest p-value possible",
    "p_of_all": "p-value of all planted secrets",
    "p_of_first": "p-value of the first planted secret",
    "rank_lower": "rank, at least",
    "rank_upper": "rank, at most",
    "removed": "removed phrases searched",
    "resolution": "what the references resolve",
    "seconds": "time",
    "sha256": "SHA-256",
    "space": "reference space",
    "space_bits": "size of the space, log2",
    "surprise": "weight of surprisal",
    "tied": "input and output embeddings shared",
    "toll": "penalty for each token",
    "top_drop": "loss of users with most documents",
    "top_reached_by": "null searches that reached the best score",
    "whole_needed": "canaries that only the whole text reveals",
}
_ABBREVIATIONS = {"p value": "p-value", "e value": "E-value", "bleu": "BLEU", "f1": "F1"}
_BITS = ("space_bits", "ceiling", "expected_by_chance", "exposure", "exposure_difference")
_SECONDS = ("seconds", "seconds_per_epoch", "seconds_per_trial")
_UNITS = dict.fromkeys(_BITS, "bits") | dict.fromkeys(_SECONDS, "s")
_UNITS |= {"peak_memory_mib": "MiB", "drop": "nats"}
_SHARES = re.compile(
    "(?:.*_)?(?:accuracy|hamming|confidence|certainty)(?:_by_chance)?|tolerance|sample_rate|"
    "(?:ablated_)?frequent|silenced|exact_match|frequent_share_(?:un)?seen|called_share"
)


def pairs(facts: Mapping[str, Any], *, show_secrets: bool, left_out: str = "$^") -> Facts:
    """Keys in words and values with units; an interval follows its value.

    Args:
        facts: raw keys and values; empty values and claims are left out.
        show_secrets: show texts and ids unredacted.
        left_out: pattern of keys to leave out.

    Example:
        >>> pairs({"peak_memory_mib": 12.5, "gap": 2, "gap_low": 1, "gap_high": 3, "found": None},
        ...       show_secrets=False)
        (('peak memory', '12.5 MiB'), ('gap', '2 (1 to 3)'))
    """
    if isinstance(facts.get("claim"), Mapping):  # shown above
        left_out = f"{left_out}|claim|verdict"
    entries = []
    for key, value in facts.items():
        if (
            value in (None, "", [], {})
            or re.fullmatch(left_out, key)
            or _is_shown_with_another(key, facts)
        ):
            continue
        text = value_text(key, value, show_secrets=show_secrets)
        low, high = (facts.get(key + end) for end in ("_low", "_high"))
        if low is not None and high is not None:
            unit = f" {_UNITS[key]}" if key in _UNITS else ""
            ends = (value_text(key, end, show_secrets=show_secrets) for end in (low, high))
            interval_text = " to ".join(end.removesuffix(unit) for end in ends)
            text = f"{text.removesuffix(unit)} ({interval_text}){unit}"
        entries.append((label_of(key), text))
    return tuple(entries)


def _is_shown_with_another(key: str, facts: Mapping[str, Any]) -> bool:
    """Whether a key is an end of another key's interval, or its logarithm."""
    bases = (key.removesuffix("_low").removesuffix("_high"), key.removeprefix("log10_"))
    return any(base != key and facts.get(base) is not None for base in bases)


def label_of(key: str) -> str:
    """A key in words.

    Example:
        >>> label_of("least_p_value"), label_of("peak_memory_mib"), label_of("batch_size")
        ('smallest p-value', 'peak memory', 'batch size')
    """
    if key in _WORDS:
        return _WORDS[key]
    text = printable(key.replace("_", " ")).strip()
    if key in _UNITS:
        text = text.removesuffix(" mib")
    for plain, abbreviation in _ABBREVIATIONS.items():
        text = re.sub(rf"\b{plain}\b", abbreviation, text)
    return text


def value_text(key: str, value: Any, *, show_secrets: bool) -> str:
    """A value as text: escaped, with its unit, and redacted if its key is secret.

    Example:
        >>> value_text("seconds", 2.0, show_secrets=False)
        '2 s'
        >>> value_text("phrase", "a b", show_secrets=False)
        '▪▪▪ ▪▪▪'
        >>> value_text("noise", [{"scale": 0.1, "clip": None}, {"name": "b"}], show_secrets=False)
        'scale 0.1; b'
    """
    if value is None:
        return NOTHING
    if not show_secrets and key in ID_KEYS and not isinstance(value, int):
        return "hidden"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number_text(key, value)
    if isinstance(value, Mapping):
        if "name" in value:  # a group of settings: run.json has all of them
            return value_text("name", value["name"], show_secrets=show_secrets)
        entries = pairs(value, show_secrets=show_secrets)
        return ", ".join(f"{name} {text}" for name, text in entries) or NOTHING
    if isinstance(value, list | tuple):
        item_key = "text" if is_secret(key, value) else key
        separator = "; " if any(isinstance(item, Mapping) for item in value) else ", "
        items = (
            value_text(item_key, item, show_secrets=show_secrets) for item in value[:_MAX_ITEMS]
        )
        more = f" and {len(value) - _MAX_ITEMS:,} more" if len(value) > _MAX_ITEMS else ""
        return (separator.join(items) or NOTHING) + more
    text = printable(str(value))
    if _HASH.fullmatch(text):
        return f"{text[:16]}…"
    if _TIME.fullmatch(text):
        return f"{text[:10]}, {text[11:16]} UTC"
    return text if show_secrets or key not in SECRET_KEYS else redact(text)


def _number_text(key: str, value: float) -> str:
    if _SHARES.fullmatch(key) and 0 <= value <= 1:
        return percent(value)
    if isinstance(value, int):
        text = str(value) if key == "seed" else whole(value)
    else:
        text = f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    return f"{text} {_UNITS.get(key, '')}".strip()


def whole(number: float) -> str:
    """A count; below 100 with one decimal, from a billion on as a power of ten.

    Example:
        >>> whole(4552), whole(2.5), whole(12**10), whole(10**10)
        ('4,552', '2.5', '6.2 × 10^10', '10^10')
    """
    if number < 10**9:
        return f"{number:,.{1 if number < 100 else 0}f}".removesuffix(".0")
    exponent = len(str(int(number))) - 1
    return f"{number / 10**exponent:.1f} × 10^{exponent}".removeprefix("1.0 × ")


def percent(share: float | None) -> str:
    """A share in percent, below 10% with two significant digits.

    Example:
        >>> percent(0.4), percent(0.00012), percent(None)
        ('40%', '0.012%', '–')
    """
    if share is None:
        return NOTHING
    return f"{100 * share:.0f}%" if share >= 0.1 or share == 0 else f"{100 * share:.2g}%"


def chance(probability: float) -> str:
    """A probability; the smallest as a bound.

    Example:
        >>> chance(0.0003), chance(0.25), chance(1e-9)
        ('0.0003', '0.25', 'less than 10^-6')
    """
    if probability < 1e-6:
        return "less than 10^-6"
    text = f"{probability:.1g}" if probability < 0.01 else f"{probability:.2f}"
    return text if "e" not in text else f"{probability:.6f}".rstrip("0")


def decimal(value: float | None, digits: int = 2) -> str:
    """A number with `digits` decimals; a dash for None."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def interval(low: float | None, high: float | None, *, digits: int = 2, unit: str = "") -> str:
    """Both ends of an interval; "or more" without the upper end, a dash without both.

    Example:
        >>> interval(1.0, 2.5), interval(1.0, None), interval(None, None)
        ('1.00 to 2.50', '1.00 or more', '–')
    """
    if low is None:
        return NOTHING
    if high is None:
        return f"{low:.{digits}f}{unit} or more"
    return f"{low:.{digits}f} to {high:.{digits}f}{unit}"


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence.

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def p_value(value: float | None) -> str:
    """A p-value with two significant digits; a dash for None and NaN.

    Example:
        >>> p_value(1 / 68), p_value(0.5), p_value(0.00002), p_value(None)
        ('0.015', '0.5', '0.00002', '–')
    """
    if value is None or value != value:
        return NOTHING
    return f"{value:.2g}" if value >= 1e-4 else chance(value)
