"""Changes since earlier runs: each number then and now, and the difference with its interval.

Runs are matched by directory name and kind. A number with an interval may be measured on more or
fewer texts in the two runs. A count of phrases, secrets or users has no interval, so the settings
that determine the power of its test must be equal. Seeds and paths may differ.
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
from vestige.reports.words import Row, label_of, listed
from vestige.results import Run

WITHOUT_INTERVAL = ("completed", "perplexity")
"""Numbers of a single training, without an interval: another training may differ as much."""

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
"""Settings in `summary.json` by kind of result. None is unknown and equals any value."""

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
"""Settings in the configuration of `run.json`. None is a value; a missing one equals any value."""

NO_NUMBER = Measured(None, None, None)
NOT_COMPARED = "runs of this kind have no number that can be compared"
COPIES = "copies of the canaries"


def earlier_runs(paths: Sequence[str | Path], now: Sequence[Run] = ()) -> list[Run]:
    """The runs of an earlier release, from run folders or folders that contain them.

    A folder with the name of a run of `now` is the folder of that run, not one of several.

    Raises:
        RunError: a folder contains no run, or a folder in it contains several.
    """
    names = {run.name for run in now}
    runs = []
    for path in map(Path, paths):
        if (path / "run.json").exists() or path.resolve().name in names or not path.is_dir():
            runs.append(results.find(path))
            continue
        files = [file for depth in ("*", "*/*") for file in path.glob(f"{depth}/run.json")]
        if not files:
            raise RunError(
                f"{path} is not a run folder and holds none",
                remedy="Give --since run folders, or a folder that contains them.",
            )
        folders = sorted({file.relative_to(path).parts[0] for file in files})
        runs += [results.find(path / name) for name in folders]
    return runs


def changes(now: Sequence[Run], then: Sequence[Run]) -> list[Row]:
    """The changes: first the runs of this release, then those of the earlier release only.

    Returns:
        One row per number of each run: `run`, `question` and `quantity` (None for a run without a
        number); the number `then` and `now` with the ends of its 95% interval; `difference`, `low`
        and `high`, now minus then, None if not compared or unknown; `verdict` (better, worse, no
        change shown, not comparable, new, gone) and the reason `why`; and the verdicts of the run,
        `verdict_then` and `verdict_now`. Less is better.

    Raises:
        RunError: two runs of one side have the same name and kind, or one is damaged.
    """
    new, old = _by_key(now), _by_key(then)
    return [row for key in {**new, **old} for row in _changes_of_run(new.get(key), old.get(key))]


def _by_key(runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
    by_key: dict[tuple[str, str], Run] = {}
    for run in runs:
        if (run.name, run.result) in by_key:
            raise RunError(
                f"two runs of one kind are named {printable(run.name)}",
                remedy="Rename one: --since matches runs by the names of their directories.",
            )
        by_key[run.name, run.result] = run
    return by_key


def _changes_of_run(now: Run | None, then: Run | None) -> Iterator[Row]:
    """The rows of a run that exists on one side or on both."""
    sides = {side: run for side, run in (("now", now), ("then", then)) if run is not None}
    measurements, titles = {}, []
    for side, run in sides.items():
        titles.append(report_of(run, show_secrets=False).title)
        with guarded(run):
            measurements[side] = {
                name: measured(name, run)
                for name, quantity in QUANTITIES.items()
                if run.result in quantity.of
            }
    verdicts, why = {"then": "", "now": ""}, ""
    if now is not None and then is not None:
        verdicts = {side: verdict_word(run) for side, run in sides.items()}
        why = _difference_in_settings(now, then)
    [run, *_] = sides.values()
    [names, *_] = measurements.values()
    for name in names or [""]:
        old, new = (measurements.get(side, {}).get(name, NO_NUMBER) for side in ("then", "now"))
        if now is None or then is None:
            comparison: dict[str, Any] = {"verdict": "new" if then is None else "gone"}
        elif name:
            comparison = _compare(name, old, new, why)
        else:
            comparison = {"verdict": "not comparable", "why": NOT_COMPARED}
        yield {
            "run": printable(run.name),
            "question": titles[0],
            "quantity": name or None,
            **{"then": old.value, "then_low": old.low, "then_high": old.high},
            **{"now": new.value, "now_low": new.low, "now_high": new.high},
            **{"difference": None, "low": None, "high": None, "why": ""},
            **{f"verdict_{side}": verdicts[side] for side in ("then", "now")},
            **comparison,
        }


def _compare(quantity: str, then: Measured, now: Measured, why: str) -> dict[str, Any]:
    """The difference of a number, with its verdict."""
    sides = (("now", now), ("then", then))
    unknown = [
        f"not known {side}" + (f": {number.unknown}" if number.unknown else "")
        for side, number in sides
        if number.value is None
    ]
    if why or unknown:
        return {"verdict": "not comparable", "why": why or unknown[0]}
    value, low, high = difference_of(now, then)
    if quantity in WITHOUT_INTERVAL and low == high:
        why = "without an interval: another training may differ as much" if value else ""
        return {"verdict": "no change shown", "difference": value, "why": why}
    verdict = "worse" if low > 0 else "better" if high < 0 else "no change shown"
    if verdict == "no change shown":
        why = "; ".join(f"{side}, {number.unknown}" for side, number in sides if number.unknown)
    ends = [end if math.isfinite(end) else None for end in (low, high)]
    return {"verdict": verdict, "difference": value, "low": ends[0], "high": ends[1], "why": why}


def difference_of(now: Measured, then: Measured) -> tuple[float, float, float]:
    """Now minus then with its interval; an end is infinite if an end of a number is unknown."""
    new, old = (
        Estimate("", cast("float", number.value), number.low, number.high) for number in (now, then)
    )
    low, high = estimates.difference_of(new, old).interval
    if math.isclose(new.value, old.value, rel_tol=1e-9, abs_tol=1e-12) and low == high:
        return 0.0, 0.0, 0.0
    return new.value - old.value, low, high


def _difference_in_settings(now: Run, then: Run) -> str:
    """The settings that differ, as a sentence; "" if none does."""
    with guarded(now), guarded(then):
        new, old = _settings(now), _settings(then)
        different = [key for key in new if key in old and not _equal(new[key], old[key])]
        words = dict.fromkeys(_in_words(key[1], new[key], old[key]) for key in different)
    return f"measured with other settings: {listed([*words])}" if words else ""


def _settings(run: Run) -> dict[tuple[str, str], Any]:
    """The known settings of a run, by section and name."""
    kind, summary = run.result, run.summary
    configuration, data, models = (
        run.run.get(section) or {} for section in ("configuration", "data", "models")
    )
    values = {("summary", key): summary.get(key) for key in SUMMARY.get(kind, ())}
    if kind in QUANTITIES["perplexity"].of:
        values["data", "validation text"] = _entry(data.get("validation"), "sha256")
        values["models", "vocabulary"] = _entry(models.get("trained"), "vocabulary")
    if kind == "TextMemorization":
        values["summary", "reference texts"] = summary.get("sampled_difference") is not None
    if kind == "CanaryExposure":
        counts = [key for key in summary if re.fullmatch(r"canaries_.*_copies", key)]
        values["summary", COPIES] = sorted((key, summary[key]) for key in counts)
    if kind == "Completion":
        planted = Counter(row["copies"] for row in run.rows if row["kind"] == "canary")
        values["rows", COPIES] = sorted(planted.items())
    settings = {key: value for key, value in values.items() if value is not None}
    for key in CONFIGURATION.get(kind, ()):
        if key in configuration:
            settings["configuration", key] = configuration[key]
    return settings


def _entry(record: Any, key: str) -> Any:
    return record.get(key) if isinstance(record, Mapping) else None


def _equal(new: Any, old: Any) -> bool:
    """Whether two settings are equal; in nested ones, only shared keys are compared."""
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        shared = (new.keys() & old.keys()) - {"seed"}
        return all(_equal(new[key], old[key]) for key in shared)
    return bool(new == old)


def _in_words(name: str, new: Any, old: Any) -> str:
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in (new, old)):
        return f"{label_of(name)} {old:g} then and {new:g} now"
    return label_of(name)
