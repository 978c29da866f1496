"""Sentences of a membership report: the finding, what supports it, and warnings."""

from collections.abc import Sequence

from vestige.claims import UNDECIDED
from vestige.reports.report import lines
from vestige.reports.words import Row, p_value, percent

UNANSWERED = 0.1
"""Share of unanswered queries above which a reader is warned."""

UNDECIDED_SENTENCE = "A check did not pass, so the scores support no verdict."


def texts_finding(summary: Row) -> tuple[str, ...]:
    """The answer, and what supports it or is open."""
    found = _used(summary) if int(summary["at_least"]) else _not_shown(summary)
    return _undecided(found) if summary["verdict"] == UNDECIDED else found


def _undecided(found: tuple[str, ...]) -> tuple[str, ...]:
    first, *rest = found
    return lines(UNDECIDED_SENTENCE, f"The scores alone would say: “{first}”", " ".join(rest))


def _used(summary: Row) -> tuple[str, ...]:
    least, most = int(summary["at_least"]), _most(summary)
    flagged, rate = int(summary["named"]), percent(float(summary["rate"]))
    flags = f"{flagged:,} flagged (false discovery rate {rate})."
    if not flagged:
        flags = "None flagged: no single text has a small enough p-value."
    if most is not None and most >= least:
        number, sure = f"{least:,} to {most:,}", f"{_confidence(summary)} each"
        return f"{number} of {_listed(summary)} were used for training ({sure}).", flags
    number = f"At least {least:,} of {_listed(summary)} {'was' if least == 1 else 'were'}"
    answer = f"{number} used for training ({_confidence(summary)})."
    return lines(answer, flags, _no_upper(summary))


def _not_shown(summary: Row) -> tuple[str, ...]:
    most = _most(summary)
    if most is not None and most < int(summary["listed"]):
        number = f"At most {most:,} of" if most else "None of"
        were = "was" if most in (0, 1) else "were"
        known = int(summary["known_used"])
        return (
            f"{number} {_listed(summary)} {were} used for training ({_confidence(summary)}).",
            f"The bound holds for texts that were used like the {known:,} known members.",
        )
    count = int(summary["texts"])
    texts = "this text" if count == 1 else f"these {count:,} texts"
    return lines(
        f"The model does not know {texts} better than texts that it never saw.",
        "This does not prove that they were not used.",
        _no_upper(summary),
    )


def _no_upper(summary: Row) -> str:
    if summary["at_most"] is None:
        return (
            "No upper bound: it needs some twenty texts that are known to have been used (--used)."
        )
    if not summary["consistent"]:
        return ""
    known = int(summary["known_used"])
    return f"No upper bound: the {known:,} known members do not score high enough."


def _most(summary: Row) -> int | None:
    most = summary["at_most"] if summary["consistent"] else None
    return None if most is None else int(most)


def _listed(summary: Row) -> str:
    count = int(summary["listed"])
    texts = f"{count:,} text{'' if count == 1 else 's'}"
    return f"{texts}, one of each author," if summary["units"] == "authors" else texts


def _confidence(summary: Row) -> str:
    return f"{100 * (1 - float(summary['rate'])):g}% confidence"


def contradiction(summary: Row) -> str:
    """A warning if the lower bound is above the upper one."""
    if summary["consistent"]:
        return ""
    return (
        "The two bounds contradict each other: more texts score high than the known members allow. "
        "The known members are unlike the audited texts, and the upper bound is void."
    )


def users_finding(summary: Row, audited: Sequence[Row], known: Sequence[Row]) -> tuple[str, ...]:
    """The answer, and what supports it or is open."""
    if all(row["score"] is None for row in audited):
        return "No word of these texts could be queried.", "Give more text in the model's language."
    found = _person(audited[0], known) if len(audited) == 1 else _owner(summary)
    return _undecided(found) if summary.get("verdict") == UNDECIDED else found


def _person(own: Row, known: Sequence[Row]) -> tuple[str, ...]:
    higher = sum(float(row["score"]) >= float(own["score"]) for row in known)
    used, words = int(own["compared_words"]), int(own["words"])
    return lines(
        f"This user's texts are {'' if own['called'] else 'not '}recognized as training data.",
        f"{higher:,} of {len(known):,} non-members score as high over as many words "
        f"(p = {p_value(float(own['p_value']))}).",
        f"Only {used:,} of the user's {words:,} words are compared: few non-members have more."
        if used < words
        else "",
    )


def _owner(summary: Row) -> tuple[str, ...]:
    users, flagged, alpha = int(summary["users"]), int(summary["called"]), float(summary["rate"])
    if flagged:
        return (
            f"The texts of {flagged:,} of {users:,} users are recognized as training data (false "
            f"discovery rate {percent(alpha)}).",
            "Others may have been used as well. A bound for all users: vestige train --defence "
            "dp-fedavg.",
        )
    if (summary.get("p_value") or 1.0) <= alpha:  # runs of old versions have no such test
        return (
            f"Texts of some of {users:,} users were used for training, but no single user is "
            "recognized.",
        )
    return (
        "No user's texts are recognized as training data.",
        f"How many of the {users:,} users were used is not bounded.",
    )


def unanswered(summary: Row) -> str:
    """A warning if the service left many queries without an answer."""
    queries, missing = (int(summary.get(name) or 0) for name in ("words_asked", "words_unanswered"))
    if not queries or missing / queries <= UNANSWERED:
        return ""
    return (
        f"{missing:,} of {queries:,} queries have no answer ({percent(missing / queries)}). If the "
        "service refuses some texts and not others, the comparison is unfair."
    )
