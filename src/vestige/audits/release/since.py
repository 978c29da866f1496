"""What changed since earlier runs: each number then and now, and the difference with its interval.

Runs are matched by the name of their directory and by kind. A number with an interval is
comparable however much was read for it. A count of tested phrases, secrets or users has no
interval, so settings that give a test more power must be equal, too. Seeds and paths may differ.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from vestige import results
from vestige.errors import RunError
from vestige.metrics import estimates
from vestige.metrics.estimates import Estimate
from vestige.reports.disclosure import printable
from vestige.reports.quantities import QUANTITIES, Measured, measured
from vestige.reports.report import guarded, report_of
from vestige.reports.verdicts import verdict_word
from vestige.reports.words import Row, listed, words_of
from vestige.results import Run

WITHOUT_INTERVAL = ("completed", "perplexity")
"""Numbers of one training without an interval: another training may differ as much."""

SUMMARY: Mapping[str, tuple[str, ...]] = {
    "CanaryExposure": ("references", "space", "canaries_planted"),
    "Completion": ("prefix", "canaries"),
    "Deletion": ("deleted",),
    "Extraction": ("trials", "length", "space_bits"),
    "SecretAudit": ("patterns", "planted"),
    "SecretCompletion": ("parts",),
    "SecretExposure": ("secrets", "level"),
    "SecretRank": ("secrets", "level"),
    "TextAudit": ("texts", "units"),
    "TextMemorization": (
        *("prefix_tokens", "suffix_tokens", "tries", "chance", "top_k", "temperature"),
    ),
    "UpdateDiff": ("search", "score", "null_searches", "places"),
    "UserAudit": ("users", "rate", "k", "references"),
}
"""Settings in `summary.json` by kind of result. An unknown one (None) is equal to any."""

CONFIGURATION: Mapping[str, tuple[str, ...]] = {
    "DefendedTraining": ("sequence_length",),
    "Extraction": ("search_budget", "rank_sample"),
    "PairTraining": ("sequence_length",),
    "SecretAudit": ("search_budget", "rank_sample"),
    "SecretCompletion": ("question",),
    "SecretExposure": ("question", "references"),
    "SecretRank": ("question", "references"),
    "UpdateDiff": ("search", "score", "removed", "top"),
    "UserAudit": ("how", "queries", "calls"),
}
"""Settings in the configuration of `run.json`. None is a value; a missing one is equal to any."""

NO_NUMBER = Measured(None, None, None)
NOT_COMPARED = "runs of this kind have no number that can be compared"
COPIES = "copies of the canaries"


def earlier_runs(paths: Sequence[str | Path], now: Sequence[Run] = ()) -> list[Run]:
    """The runs of an earlier release, from run folders or folders that contain them.

    A folder with the name of a run of `now` is taken as that run's, not as one of several.

    Raises:
        RunError: a folder contains no run, or a folder in it contains several.
    """
    names = {run.name for run in now}
    found = []
    for path in map(Path, paths):
        if (path / "run.json").exists() or path.resolve().name in names or not path.is_dir():
            found.append(results.find(path))
            continue
        files = [file for depth in ("*", "*/*") for file in path.glob(f"{depth}/run.json")]
        if not files:
            raise RunError(
                f"{path} is not a run folder and holds none",
                remedy="Give --since run folders, or a folder that contains them.",
            )
        inside = sorted({file.relative_to(path).parts[0] for file in files})
        found += [results.find(path / name) for name in inside]
    return found


def changes(now: Sequence[Run], then: Sequence[Run]) -> list[Row]:
    """What changed: first the runs of this release, then those that only the earlier one has.

    Returns:
        One row per number of each run: `run`, `question` and `quantity` (None for a run without a
        number); the number `then` and `now` with the ends of its 95% interval; `difference`, `low`
        and `high`, now minus then, None if they are not compared or unknown; `verdict` (better,
        worse, no change shown, not comparable, new, gone) and `why` it is no clearer; and the
        verdicts of the run, `verdict_then` and `verdict_now`. Less is better.

    Raises:
        RunError: two runs of one side have the same name and kind, or one is damaged.
    """
    ours, before = _by_key(now), _by_key(then)
    return [row for key in {**ours, **before} for row in _of_run(ours.get(key), before.get(key))]


def _by_key(runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
    found: dict[tuple[str, str], Run] = {}
    for run in runs:
        if (run.name, run.result) in found:
            raise RunError(
                f"two runs of one kind are named {printable(run.name)}",
                remedy="Rename one: --since matches runs by the names of their directories.",
            )
        found[run.name, run.result] = run
    return found


def _of_run(now: Run | None, then: Run | None) -> Iterator[Row]:
    """The rows of a run that exists on one side or on both."""
    sides = {side: run for side, run in (("now", now), ("then", then)) if run is not None}
    numbers, titles = {}, []
    for side, run in sides.items():
        titles.append(report_of(run, show_secrets=False).title)
        with guarded(run):
            numbers[side] = {
                n: measured(n, run) for n, q in QUANTITIES.items() if run.result in q.of
            }
    words, why = {"then": "", "now": ""}, ""
    if now is not None and then is not None:
        words = {side: verdict_word(run) for side, run in sides.items()}
        why = _difference_in_settings(now, then)
    [run, *_] = sides.values()
    [own, *_] = numbers.values()
    for name in own or [""]:
        before, ours = (numbers.get(side, {}).get(name, NO_NUMBER) for side in ("then", "now"))
        if now is None or then is None:
            found: dict[str, Any] = {"verdict": "new" if then is None else "gone"}
        elif name:
            found = _compared(name, before, ours, why)
        else:
            found = {"verdict": "not comparable", "why": NOT_COMPARED}
        yield {
            "run": printable(run.name),
            "question": titles[0],
            "quantity": name or None,
            **{"then": before.value, "then_low": before.low, "then_high": before.high},
            **{"now": ours.value, "now_low": ours.low, "now_high": ours.high},
            **{"difference": None, "low": None, "high": None, "why": ""},
            **{f"verdict_{side}": words[side] for side in ("then", "now")},
            **found,
        }


def _compared(quantity: str, then: Measured, now: Measured, why: str) -> dict[str, Any]:
    """The difference of a number, and what it says."""
    sides = (("now", now), ("then", then))
    unknown = [f"not known {side}" + (f": {one.unknown}" if one.unknown else "")
               for side, one in sides if one.value is None]  # fmt: skip
    if why or unknown:
        return {"verdict": "not comparable", "why": why or unknown[0]}
    value, low, high = difference_of(now, then)
    if quantity in WITHOUT_INTERVAL and low == high:
        why = "without an interval: another training may differ as much" if value else ""
        return {"verdict": "no change shown", "difference": value, "why": why}
    verdict = "worse" if low > 0 else "better" if high < 0 else "no change shown"
    if verdict == "no change shown":
        why = "; ".join(f"{side}, {one.unknown}" for side, one in sides if one.unknown)
    ends = [end if math.isfinite(end) else None for end in (low, high)]
    return {"verdict": verdict, "difference": value, "low": ends[0], "high": ends[1], "why": why}


def difference_of(now: Measured, then: Measured) -> tuple[float, float, float]:
    """Now minus then, with its interval; an end is infinite where one of the two is unknown."""
    ours, theirs = (
        Estimate("", cast("float", one.value), one.low, one.high) for one in (now, then)
    )
    low, high = estimates.difference_of(ours, theirs).interval
    if math.isclose(ours.value, theirs.value, rel_tol=1e-9, abs_tol=1e-12) and low == high:
        return 0.0, 0.0, 0.0
    return ours.value - theirs.value, low, high


def _difference_in_settings(now: Run, then: Run) -> str:
    """Which settings differ, as a sentence; "" where none does."""
    with guarded(now), guarded(then):
        ours, before = _settings(now), _settings(then)
        shared = [key for key in ours if key in before and not _alike(ours[key], before[key])]
        words = dict.fromkeys(_in_words(key[1], ours[key], before[key]) for key in shared)
    return f"measured with other settings: {listed([*words])}" if words else ""


def _settings(run: Run) -> dict[tuple[str, str], Any]:
    """What is known of the settings of a run, by their place and name."""
    kind, summary = run.result, run.summary
    made, data, models = (run.run.get(n) or {} for n in ("configuration", "data", "models"))
    known = {("summary", key): summary.get(key) for key in SUMMARY.get(kind, ())}
    if kind in QUANTITIES["perplexity"].of:
        known["data", "validation text"] = _entry(data.get("validation"), "sha256")
        known["models", "vocabulary"] = _entry(models.get("trained"), "vocabulary")
    if kind == "TextMemorization":
        known["summary", "reference texts"] = summary.get("sampled_difference") is not None
    if kind == "CanaryExposure":
        counts = [key for key in summary if re.fullmatch(r"canaries_.*_copies", key)]
        known["summary", COPIES] = sorted((key, summary[key]) for key in counts)
    if kind == "Completion":
        planted = Counter(row["copies"] for row in run.rows if row["kind"] == "canary")
        known["rows", COPIES] = sorted(planted.items())
    found = {place: value for place, value in known.items() if value is not None}
    for key in CONFIGURATION.get(kind, ()):
        if key in made:
            found["configuration", key] = made[key]
    return found


def _entry(found: Any, key: str) -> Any:
    return found.get(key) if isinstance(found, Mapping) else None


def _alike(ours: Any, before: Any) -> bool:
    """Whether two settings are equal; of nested ones, the keys that both sides have."""
    if isinstance(ours, Mapping) and isinstance(before, Mapping):
        shared = (ours.keys() & before.keys()) - {"seed"}
        return all(_alike(ours[key], before[key]) for key in shared)
    return bool(ours == before)


def _in_words(name: str, ours: Any, before: Any) -> str:
    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in (ours, before)):
        return f"{words_of(name)} {before:g} then and {ours:g} now"
    return words_of(name)
