"""Scores of texts compared: AUC, and TPR at 1 % and 0.1 % FPR, on fine-tunes of known texts.

Three pairs (`pairs.py`), all weights or an adapter, one, two or four epochs, by seed. Each
fine-tune is the target in turn, over the texts that it read and those that none did; the others of
its cell are its shadows, on texts that are not among these.

    VESTIGE_DATA=data python benchmarks/text_membership --work DIR [--smollm FOLDER] [--seeds 5]
        [--pairs wiki reddit chat] [--kinds full lora]

DIR keeps models and token statistics: another run goes on there.
"""

import argparse
import time
from pathlib import Path

import torch
from cells import Texts, asked, measured, nulls
from pairs import Pair, pair, read_by_base
from table import show, show_nulls, summary
from tunes import EPOCHS, fine_tunes, small_base

from vestige.memory import keep_freed_pages
from vestige.models.token_statistics import TokenStatistics


def made(
    name: str, own: Pair, texts: Texts, kind: str, seed: int, work: Path
) -> list[TokenStatistics]:
    """What a fine-tune says of the pair's texts, after each number of epochs."""
    began = time.perf_counter()
    folders = fine_tunes(
        own.base,
        own.texts[own.drawn(seed)],
        kind=kind,
        rate=own.rates[kind],
        seed=seed,
        out=work / f"{name}-{kind}-{seed}",
    )
    trained = time.perf_counter()
    said = [asked(folder, texts.texts, work / "statistics") for folder in folders]
    seconds = time.perf_counter() - trained
    print(f"{name}, {kind}, seed {seed}: {trained - began:.0f} s trained, {seconds:.0f} s asked")
    return said


def main() -> None:
    """Parse, make what is missing, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--smollm", type=Path, help="A folder of SmolLM2-135M-Instruct, for chat.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pairs", nargs="+", default=["wiki", "reddit", "chat"])
    parser.add_argument("--only-ask", action="store_true", help="Print no tables.")
    parser.add_argument("--kinds", nargs="+", default=["full", "lora"])
    given = parser.parse_args()
    keep_freed_pages()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    small = given.work / "base"
    if set(given.pairs) - {"chat"}:
        small_base(read_by_base(), small)
    cells = {}
    for name in given.pairs:
        own = pair(name, small, given.smollm)
        texts = Texts.of(own, given.seeds)
        base = asked(own.base, texts.texts, given.work / "statistics", likeliest=100)
        for kind in given.kinds:
            seeds = [made(name, own, texts, kind, seed, given.work) for seed in range(given.seeds)]
            for epochs, tunes in (
                () if given.only_ask else zip(EPOCHS, zip(*seeds, strict=True), strict=True)
            ):
                title = f"{name}, {kind}, {epochs} epoch{'s' * (epochs > 1)}"
                cells[title] = list(measured(texts, tunes, base))
                show(title, cells[title])
                show_nulls(list(nulls(texts, tunes, base)))
    summary(cells)


if __name__ == "__main__":
    main()
