"""What can be read out of the pair of models before and after a deletion, by the way of deleting.

The bases and texts are those that `update_pairs make` made. A base is continued on an update in
which nine secrets stand 20, 5 and 1 times (BEFORE); the documents that hold them are deleted by

exact retraining  the base continued on the other documents alone, with another seed
gradient ascent   BEFORE, stepping up the loss of the deleted and down that of the others, an epoch
other text        BEFORE, continued on clean text of the same kind

Then the roles are swapped, and the pair is searched by `vestige diff --removed`, by Wu et al.'s
reversed guidance and by CDD, at equal forward tokens: tokens of the secrets that rows hold in runs
of three, among the first 10, 50 and all rows.

    python benchmarks/deletion_readout.py PAIRS --out DIR [--texts reddit wikitext2 newsgroups]

Each search is kept in DIR and not run again.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from deletion import fit
from update_pairs.measures import TOPS, recalled, truth
from update_pairs.methods import METHODS
from update_pairs.protocol import Row
from update_pairs.searches import BUDGET

from vestige.data.writing import write_text
from vestige.memory import keep_freed_pages
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel

READERS = ("hybrid", "reversed guidance", "CDD")
WAYS = ("exact retraining", "gradient ascent", "other text")
LEARNT = {"epochs": 8, "rate": 1e-3}
LONGEST = 360
"""Characters of a document that is read: its beginning."""


def models(pair: Path, seed: int) -> tuple[LanguageModel, dict[str, LanguageModel]]:
    """BEFORE, and AFTER by the way that the secrets were deleted."""
    facts = json.loads((pair / "facts.json").read_text("utf-8"))
    update, clean = (_documents(pair / f"{name}.json") for name in ("update", "clean"))
    holds = [any(secret in text for secret in facts["secrets"]) for text in update]
    kept = [text for text, secret in zip(update, holds, strict=True) if not secret]
    gone = [text for text, secret in zip(update, holds, strict=True) if secret]
    base = load_model(pair / "before")
    before = fit(base, update, seed=seed, **LEARNT)
    return before, {
        "exact retraining": fit(base, kept, seed=seed + 1, **LEARNT),
        "gradient ascent": fit(before, kept, seed=seed, epochs=1, rate=2e-4, forget=gone),
        "other text": fit(before, clean, seed=seed, **LEARNT),
    }


def _documents(file: Path) -> list[str]:
    return [text[:LONGEST] for text in json.loads(file.read_text("utf-8"))]


def read_out(pair: Path, out: Path, seed: int) -> Iterator[tuple[tuple[str, str], dict[str, int]]]:
    """Counts of secret tokens that each reader's rows hold, by way and reader."""
    made: tuple[LanguageModel, dict[str, LanguageModel]] | None = None
    known = None
    for way in WAYS:
        for reader in READERS:
            file = out / f"{pair.name}-{way}-{reader}-{seed}.json".replace(" ", "-")
            if not file.is_file():
                made = made or models(pair, seed)
                found = METHODS[reader](made[1][way], made[0], BUDGET, seed)
                rows = [[list(row.tokens), row.score, row.fragment] for row in found.rows]
                read = found.before + found.after
                write_text(file, json.dumps({"rows": rows, "read": read}))
                print(
                    f"{pair.name}, {way}, {reader}: {len(rows)} rows, {read:,} tokens", flush=True
                )
            known = known or truth(pair, load_model(pair / "before").vocabulary)
            kept = json.loads(file.read_text("utf-8"))
            rows = [Row(tuple(tokens), *rest) for tokens, *rest in kept["rows"]]
            counts = {"read": kept["read"]}
            for copies in (20, 5, 1):
                for top in TOPS:
                    hit, counts[f"of x{copies}"] = recalled(rows[:top], known, copies)
                    counts[f"x{copies}, {top or 'all'}"] = hit
            yield (way, reader), counts


def table(found: dict[tuple[str, str], list[dict[str, int]]]) -> None:
    """Markdown, a line a way and a reader; shares over the pairs' secret tokens together."""
    columns = [(copies, top or "all") for copies in (20, 5, 1) for top in TOPS]
    heads = [f"x{copies}, {top}" for copies, top in columns]
    print(f"| deleted by | read by | pairs | {' | '.join(heads)} |")
    print("| --- " * (3 + len(heads)) + "|")
    for (way, reader), rows in found.items():
        cells = [
            sum(row[f"x{copies}, {top}"] for row in rows)
            / sum(row[f"of x{copies}"] for row in rows)
            for copies, top in columns
        ]
        shares = " | ".join(f"{cell:.2f}" for cell in cells)
        print(f"| {way} | {reader} | {len(rows)} | {shares} |")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", nargs="+", default=["reddit", "wikitext2", "newsgroups"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    keep_freed_pages()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    found = defaultdict(list)
    for name in given.texts:
        for key, counts in read_out(given.pairs / f"{name}-full", given.out, given.seed):
            found[key].append(counts)
        table(found)


if __name__ == "__main__":
    main()
