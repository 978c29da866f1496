"""Keys and values of summaries and records in words, with units."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vestige.reports.disclosure import IDS, SECRET_KEYS, is_secret, printable, redact
from vestige.reports.numbers import NOTHING, percent, whole

Facts = tuple[tuple[str, str], ...]
_MOST = 12  # entries of a list
_HASH = re.compile("[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_ENDS = ("_low", "_high")
_WORDS = {
    "ablated_frequent": "frequent words, with silent units",
    "accuracy_by_chance": "whole secrets by chance",
    "alone": "canaries significant by themselves",
    "at_least": "used, at least",
    "at_most": "used, at most",
    "ceiling": "largest exposure that the references resolve",
    "called": "users flagged",
    "certainty_among": "certainty is a share of",
    "char_embeddings": "character embeddings",
    "chance_probability": "probability of such ranks by chance",
    "counted": "word frequencies from",
    "created": "made on",
    "delta": "δ",
    "drop": "end of a phrase after a loss of",
    "drawn": "random secrets never planted",
    "effective_runs": "effective sample size of the estimate",
    "epsilon": "ε",
    "exact_asked": "canaries ranked exactly",
    "exact_decided": "canaries decided by an exact rank",
    "exposure_difference": "exposure of planted secrets over others",
    "expected_by_chance": "exposure by chance",
    "fit_distance": "distance of the skew-normal fit (Kolmogorov–Smirnov)",
    "fewest_trainings": "trainings of each, at least",
    "hamming_by_chance": "words wrong by chance",
    "in_beam": "found by the search",
    "in_part": "known in part",
    "hidden_dropout": "dropout of the hidden layer",
    "how": "queries chosen by",
    "input_dropout": "dropout of the input",
    "joint": "score above which a phrase is split",
    "joint_confidence": "confidence for all defences together",
    "judged_by": "model chosen by",
    "keep": "checkpoint kept",
    "least_probability": "smallest probability possible",
    "least_order_probability": "smallest probability possible, other order",
    "least_p_value": "smallest p-value",
    "level": "significance level",
    "max_grad_norm": "gradient norm clipped at",
    "mu": "μ of Gaussian differential privacy",
    "named": "texts flagged",
    "noise_decay": "noise of the last steps over that of the first",
    "null_top_score": "highest score of the null searches",
    "orders": "random orders of silent units",
    "order_probability": "probability against other word orders",
    "p_least": "smallest p-value possible",
    "p_of_all": "p-value of all planted secrets",
    "p_of_first": "p-value of the first planted secret",
    "parameters": "weights",
    "ranks_bounded": "ranks known as bounds",
    "ranks_exact": "ranks known exactly",
    "rank_estimate": "estimated rank",
    "rank_lower": "rank, at least",
    "rank_upper": "rank, at most",
    "removed": "removed phrases searched",
    "resolution": "what the references resolve",
    "seconds": "time",
    "seconds_per_epoch": "time for an epoch",
    "seconds_per_trial": "time for a secret",
    "sha256": "SHA-256",
    "slot_f1": "slot F1",
    "space": "reference space",
    "space_bits": "size of the space, log2",
    "surprise": "weight of surprisal",
    "tied": "input and output embeddings shared",
    "toll": "penalty for each token",
    "top_e_value": "E-value of the best phrase",
    "top_reached_by": "null searches that reached the best score",
    "vocab_size": "size of the vocabulary",
    "whole_needed": "canaries that only the whole text reveals",
}
_ABBREVIATIONS = {"p value": "p-value", "e value": "E-value", "bleu": "BLEU", "mib": "MiB"}
_UNITS = {
    "seconds": "s",
    "seconds_per_epoch": "s",
    "seconds_per_trial": "s",
    "peak_memory_mib": "MiB",
    "space_bits": "bits",
    "ceiling": "bits",
    "expected_by_chance": "bits",
    "exposure": "bits",
    "exposure_difference": "bits",
    "exact_exposure": "bits",
    "drop": "nats",
}
_SHARES = re.compile(
    "(?:.*_)?(?:accuracy|hamming|confidence|certainty)(?:_by_chance)?|tolerance|sample_rate|"
    "(?:ablated_)?frequent|silenced|exact_match|frequent_share_(?:un)?seen|called_share"
)


def pairs(facts: Mapping[str, Any], *, show_secrets: bool, left_out: str = "$^") -> Facts:
    """Names in words and values with units; an interval follows its value.

    Args:
        facts: raw keys and values; None and empty ones are left out.
        show_secrets: texts and ids unredacted.
        left_out: a pattern of keys that are shown elsewhere.

    Example:
        >>> pairs({"peak_memory_mib": 12.5, "gap": 2, "gap_low": 1, "gap_high": 3, "found": None},
        ...       show_secrets=False)
        (('peak memory', '12.5 MiB'), ('gap', '2 (1 to 3)'))
    """
    found = []
    if isinstance(facts.get("claim"), Mapping):  # shown before everything else
        facts = {key: value for key, value in facts.items() if key not in ("claim", "verdict")}
    for key, value in facts.items():
        if value in (None, "", [], {}) or re.fullmatch(left_out, key) or _beside(key, facts):
            continue
        text = shown(key, value, show_secrets=show_secrets)
        low, high = (facts.get(key + end) for end in _ENDS)
        if low is not None and high is not None:
            unit = f" {_UNITS[key]}" if key in _UNITS else ""
            ends = (shown(key, end, show_secrets=show_secrets) for end in (low, high))
            known = " to ".join(end.removesuffix(unit) for end in ends)
            text = f"{text.removesuffix(unit)} ({known}){unit}"
        found.append((words_of(key), text))
    return tuple(found)


def words_of(key: str) -> str:
    """A raw key in words.

    Example:
        >>> words_of("least_p_value"), words_of("peak_memory_mib"), words_of("batch_size")
        ('smallest p-value', 'peak memory', 'batch size')
    """
    if key in _WORDS:
        return _WORDS[key]
    text = printable(key.replace("_", " ")).strip()
    if key in _UNITS:
        text = text.removesuffix(" mib")
    for short, written in _ABBREVIATIONS.items():
        text = re.sub(rf"\b{short}\b", written, text)
    return text


def shown(key: str, value: Any, *, show_secrets: bool) -> str:
    """A value as text: escaped, with its unit, and redacted where its key is secret.

    Example:
        >>> shown("seconds", 2.0, show_secrets=False), shown("phrase", "a b", show_secrets=False)
        ('2 s', '▪▪▪ ▪▪▪')
        >>> shown("noise", [{"scale": 0.1, "clip": None}, {"name": "b"}], show_secrets=False)
        'scale 0.1; b'
    """
    if value is None:
        return NOTHING
    if not show_secrets and key in IDS and not isinstance(value, int):
        return "hidden"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(key, value)
    if isinstance(value, Mapping):
        if "name" in value:  # settings of its own, of which run.json has the rest
            return shown("name", value["name"], show_secrets=show_secrets)
        inner = pairs(value, show_secrets=show_secrets)
        return ", ".join(f"{name} {text}" for name, text in inner) or NOTHING
    if isinstance(value, list | tuple):
        name = "text" if is_secret(key, value) else key
        texts = [shown(name, item, show_secrets=show_secrets) for item in value[:_MOST]]
        nested = any(isinstance(item, Mapping) for item in value)
        return _several(texts, len(value) - _MOST, nested=nested)
    text = printable(str(value))
    if _HASH.fullmatch(text):
        return f"{text[:16]}…"
    if _TIME.fullmatch(text):
        return f"{text[:10]}, {text[11:16]} UTC"
    return text if show_secrets or key not in SECRET_KEYS else redact(text)


def _number(key: str, value: float) -> str:
    if _SHARES.fullmatch(key) and 0 <= value <= 1:
        return percent(value)
    if isinstance(value, int):
        text = str(value) if key == "seed" else whole(value)
    else:
        text = f"{value:,.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    unit = _UNITS.get(key, "")
    return f"{text} {unit}".strip()


def _several(texts: Iterable[str], more: int, *, nested: bool) -> str:
    joined = ("; " if nested else ", ").join(texts) or NOTHING
    return f"{joined} and {more:,} more" if more > 0 else joined


def _beside(key: str, facts: Mapping[str, Any]) -> bool:
    """Whether a key is an end of another's interval, or its logarithm."""
    whole_key = key.removesuffix("_low").removesuffix("_high")
    if key != whole_key and facts.get(whole_key) is not None:
        return True
    return key.startswith("log10_") and facts.get(key.removeprefix("log10_")) is not None
