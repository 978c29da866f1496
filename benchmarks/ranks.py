"""What do ranks of all true words cost beyond the output matrix product that they need?

For vocabularies of 5,000 and 50,000 and heads that read 128 or 512 numbers: ranks by counting,
the product alone, and a full argsort of the same logits, in turns in this run. The product alone
is the fastest of several shapes, into memory that is used again, without a bias; what is made once
for a model is no part of either. One thread, timed in its own seconds on the CPU: waiting for
other programs would drown what is measured.

    python benchmarks/ranks.py [--repeats 9] [--scale 1.0]

The last line is JSON: the ratios of medians (at most 1.3 is wanted), argsort's beside them, and
the memory that ranks take of few and of ten times as many words, in MiB.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vestige.memory import PeakMemory, keep_freed_pages
from vestige.models.predictions import ranks_in
from vestige.models.ranks import LinearRanks

CASES = ((5_000, 128, 4096), (5_000, 512, 2048), (50_000, 128, 1024), (50_000, 512, 512))
"""Vocabulary, width of what the head reads, words."""

SHAPES = ((256, 1024), (512, 512), (512, 1024), (1024, 512), (1024, 1024), (512, 50_000))
"""Rows and columns of the products alone."""

SORTED_AT_ONCE = 64


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def words(n: int, vocabulary: int) -> Tensor:
    """Ids as text has them, the commonest first."""
    return (1 / torch.rand(n)).pow(1.2).long() % vocabulary


@torch.no_grad()
def products(hidden: Tensor, head: nn.Linear, rows: int, columns: int) -> None:
    """The output product and nothing else."""
    out = torch.empty(rows * min(columns, head.out_features))
    slices = [part.t() for part in head.weight.split(columns)]
    for some in hidden.split(rows):
        for part in slices:
            torch.mm(some, part, out=out[: len(some) * part.shape[1]].view(len(some), -1))


@torch.no_grad()
def by_sorting(hidden: Tensor, head: nn.Linear, truth: Tensor) -> Tensor:
    """Ranks as places in a stable sort of all words, in slices of rows."""
    places = []
    for some, true in zip(hidden.split(SORTED_AT_ONCE), truth.split(SORTED_AT_ONCE), strict=True):
        order = head(some).argsort(dim=1, descending=True, stable=True)
        places.append((order == true[:, None]).int().argmax(1) + 1)
    return torch.cat(places)


def case(vocabulary: int, width: int, n: int, repeats: int) -> dict[str, object]:
    """Times of one vocabulary and head, in turns; the first round warms up."""
    torch.manual_seed(0)
    head, hidden, truth = nn.Linear(width, vocabulary), torch.randn(n, width), words(n, vocabulary)
    counter = LinearRanks(head)
    work: dict[object, Callable[[], object]] = {
        shape: lambda shape=shape: products(hidden, head, *shape) for shape in SHAPES
    }
    work["ranks"] = lambda: counter(hidden, truth)
    taken: dict[object, list[float]] = {name: [] for name in work}
    for repeat in range(repeats + 1):
        for name in work if repeat % 2 else list(work)[::-1]:
            spent = seconds(work[name])
            if repeat:
                taken[name].append(spent)
    few = slice(0, max(SORTED_AT_ONCE, n // 8))
    sorting = seconds(lambda: by_sorting(hidden[few], head, truth[few])) * n / (few.stop or n)
    middle = {name: statistics.median(times) for name, times in taken.items()}
    fastest = {name: min(times) for name, times in taken.items()}
    alone = min(middle[shape] for shape in SHAPES)
    exact = ranks_in(head(hidden[few]).detach(), truth[few])
    off = (counter(hidden[few], truth[few])["ranks"] - exact).abs().max()
    if int(off) > 1:  # two whole products may differ in a last bit
        raise SystemExit(f"ranks are off by {int(off)}")
    return {
        "vocabulary": vocabulary,
        "hidden": width,
        "ratio": round(middle["ranks"] / alone, 3),
        "fastest_ratio": round(fastest["ranks"] / min(fastest[s] for s in SHAPES), 3),
        "argsort_ratio": round(sorting / alone, 1),
        "words_per_second": round(n / middle["ranks"]),
    }


def extra_mib(n: int) -> float | None:
    """What ranks of n words take beside their inputs and answers."""
    head, hidden, truth = nn.Linear(128, 50_000), torch.randn(n, 128), words(n, 50_000)
    peak = PeakMemory(torch.device("cpu"))
    LinearRanks(head)(hidden, truth)
    return peak.mib()


def main() -> None:
    """Time every case and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of words")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    memory = [extra_mib(n) for n in (600, 6000)]  # first: later, freed pages are kept
    keep_freed_pages()
    rows = []
    for vocabulary, width, n in CASES:
        n = max(SORTED_AT_ONCE, int(n * arguments.scale))
        rows.append(case(vocabulary, width, n, arguments.repeats))
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "benchmark": "ranks",
        "worst_ratio": max(row["ratio"] for row in rows),
        "cases": rows,
        "extra_memory_mib": [None if mib is None else round(mib, 1) for mib in memory],
        "repeats": arguments.repeats,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
