"""Tables of a cell: means over fine-tunes with intervals whose unit is the fine-tune."""

import numpy as np
from scipy import stats

AHEAD = ("ours", "error-zone")


def interval(values) -> str:
    """Mean and 95 % interval by Student's t over fine-tunes."""
    values = np.asarray(values, float)
    half = 0.0
    if len(values) > 1:
        half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():.3f} ± {half:.3f}"


def show(title: str, rows: list[dict[str, tuple[float, ...]]]) -> None:
    """Print a cell."""
    gains = [row["gain"] for row in rows]
    read, never = np.mean([gain[:2] for gain in gains], axis=0)
    print(f"\n### {title}\n\n{len(rows)} fine-tunes; nats a token gained over the base: "
          f"{read:.3f} on texts read, {never:.3f} on others.\n")  # fmt: skip
    print("| score | AUC | TPR at 1 % | TPR at 0.1 % |\n| --- | --- | --- | --- |")
    for name in (name for name in rows[0] if name != "gain"):
        told = " | ".join(interval([row[name][place] for row in rows]) for place in range(3))
        print(f"| {name} | {told} |")
    for place, figure in ((1, "1 %"), (2, "0.1 %")):
        ahead = [row["ours"][place] - row["error-zone"][place] for row in rows]
        ratio = np.mean([row["ours, 20 shown"][place] for row in rows]) / max(
            np.mean([row["error-zone"][place] for row in rows]), 1e-9
        )
        print(f"\nTPR at {figure}: ours - error zone {interval(ahead)}; ours from 20 shown tokens "
              f"is {ratio:.2f} of the whole error zone.", flush=True)  # fmt: skip


def show_nulls(rows: list[dict[str, tuple[float, ...]]]) -> None:
    """Print what ours finds where there is nothing."""
    for name in rows[0]:
        auc, rate = (interval([row[name][place] for row in rows]) for place in (0, 1))
        print(f"\n{name}, texts that another fine-tune read: AUC {auc}, TPR at 1 % {rate}.")


SUMMED = (
    "loss",
    "min-k-plus",
    "log-ratio",
    "error-zone",
    "ours",
    "error-zone, 20 shown, floor",
    "error-zone, 20 shown, expected",
    "ours, 20 shown",
)


def summary(cells: dict[str, list[dict[str, tuple[float, ...]]]]) -> None:
    """Print a line a cell: TPR at 1 % of the scores that matter, and how ours compares."""
    print(f"\n| cell | {' | '.join(SUMMED)} | ours - error zone | shown / error zone |")
    print("| --- " * (len(SUMMED) + 3) + "|")
    for title, rows in cells.items():
        means = [np.mean([row[name][1] for row in rows]) for name in SUMMED]
        ahead = [row["ours"][1] - row["error-zone"][1] for row in rows]
        ratio = means[-1] / max(means[SUMMED.index("error-zone")], 1e-9)
        numbers = " | ".join(f"{one:.3f}" for one in means)
        print(f"| {title} | {numbers} | {interval(ahead)} | {ratio:.2f} |", flush=True)
