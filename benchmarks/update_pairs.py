"""What an update reveals: methods compared on pairs of models whose update is known to the token.

- `make`: twenty pairs and a null of each. A GPT-2 of four layers learns the earlier part of a
  text and is continued on an update with nine secrets, three of them 20 times, three 5 times and
  three once: with all weights, by a LoRA adapter, on the update diluted 1:4 with earlier text, or
  on a chat whose assistant says the secrets. The null is the same training on clean text with
  another seed.
- `compare`: every pair and null searched by every method (`update_methods.py`) with about 50,000
  forward tokens of both models; then tables of recall, coverage, rows found and false alarms, with
  intervals over the five texts.

    VESTIGE_DATA=corpora python benchmarks/update_pairs.py make compare --work DIR --rows FILE
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, Run, log, main
from networks import adapter, gpt2
from update_methods import METHODS, SearchRow
from update_texts import COPIES, TEXTS, chat, documents_of, secrets_of, shuffled, taken

from reproduction.updates.reconstruction import is_verbatim, ngrams, tokens_found
from vestige.audits.update.nulls import NEEDED, NullScores
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary
from vestige.data.writing import write_text
from vestige.metrics.estimates import ratio_of_sums
from vestige.models.checkpoints import load_model, save_model
from vestige.models.folders import ADAPTER_CONFIG
from vestige.training.config import TrainingConfig
from vestige.training.recipe import snapshot

KINDS = ("full", "lora", "mixed", "chat")
TOPS = (10, 50, None)
"""Rows that a reader looks at; None for all."""
BUDGET = 50_000
"""Forward tokens of both models together in one search."""


@dataclass(frozen=True)
class Sizes:
    """Tokens of the earlier text and of the update's own, the vocabulary, width, rank, dilution."""

    earlier: int = 280_000
    later: int = 12_000
    vocabulary: int = 4096
    width: int = 128
    rank: int = 64
    dilution: int = 4
    epochs: int | None = None


FIRST = TrainingConfig(
    seed=0, epochs=2, batch_size=8, sequence_length=128, learning_rate=1.5e-3, schedule="cosine",
    max_grad_norm=1.0,
)  # fmt: skip
ALL_WEIGHTS = replace(FIRST, epochs=8, batch_size=4, learning_rate=1e-3, schedule="constant")
CONTINUED = {
    "full": ALL_WEIGHTS,
    "lora": replace(FIRST, epochs=8, batch_size=4, learning_rate=3e-3, warmup_steps=50),
    "mixed": replace(ALL_WEIGHTS, epochs=4, batch_size=8),
    "chat": ALL_WEIGHTS,
}


# Pairs -------------------------------------------------------------------------------------------


def make(run: Run) -> list[Row]:
    """Make what is missing of the pairs in the work folder."""
    sizes = run.size(Sizes(), Sizes(3000, 6000, 400, 32, 4, 1, epochs=1))
    for name in run.size(TEXTS, TEXTS[:1]):
        make_pairs(run, name, sizes)
    return [{"pair": pair.name} for pair in made_pairs(run.folder / "pairs")]


def make_pairs(run: Run, name: str, sizes: Sizes) -> None:
    """All pairs of one text."""
    kinds = run.size(KINDS, KINDS[:2])
    if all((run.folder / "pairs" / f"{name}-{kind}" / "facts.json").is_file() for kind in kinds):
        return
    seed = TEXTS.index(name)
    first, second = documents_of(run, name)
    lengths = np.cumsum([len(text) for text in first])
    known = first[: int(np.searchsorted(lengths, 4 * sizes.earlier)) + 1]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(known), size=sizes.vocabulary)
    earlier, rest = taken(first, vocabulary, sizes.earlier)
    update, rest = taken(second or rest, vocabulary, sizes.later)
    clean, _ = taken(rest, vocabulary, sizes.later)
    parts = {"earlier": earlier, "update": update, "clean": clean}
    trainings = run.folder / "trainings"

    def trained(label: str, texts: Sequence[str], start: Any, how: TrainingConfig) -> Any:
        how = replace(how, epochs=sizes.epochs or how.epochs)
        corpus = Corpus.from_texts(texts)
        return snapshot(trainings / label, corpus, start=start, vocabulary=vocabulary, config=how)

    start = gpt2(vocabulary, width=sizes.width, layers=4, heads=4, positions=256, seed=seed)
    before = trained(f"{name}-before", earlier, start, replace(FIRST, seed=seed))
    for kind in kinds:
        pair = run.folder / "pairs" / f"{name}-{kind}"
        read = texts_of(kind, parts, secrets_of(name), sizes, seed)
        save_model(before, pair / "before")
        for role, texts, number in (("after", read[0], 100 + seed), ("null", read[1], 200 + seed)):
            begun = adapter(before, sizes.rank, number) if kind == "lora" else before
            how = replace(CONTINUED[kind], seed=number)
            save_model(trained(f"{pair.name}-{role}", texts, begun, how), pair / role)
            if kind == "lora":
                put_base(pair / role / ADAPTER_CONFIG)
        for label, texts in (("earlier", earlier), ("update", read[0]), ("clean", read[1])):
            write_text(pair / f"{label}.json", json.dumps(texts))
        told = {"text": name, "kind": kind, "secrets": secrets_of(name)}
        write_text(pair / "facts.json", json.dumps(told))
        log(f"made {pair.name}")


def texts_of(
    kind: str, parts: Mapping[str, list[str]], secrets: Mapping[str, int], sizes: Sizes, seed: int
) -> tuple[list[str], list[str]]:
    """The update of a kind, and the clean text of its null."""
    if kind == "chat":
        return chat(parts["update"], secrets, seed), chat(parts["clean"], {}, 100 + seed)
    copies = [secret for secret, number in secrets.items() for _ in range(number)]
    update, clean = shuffled([*parts["update"], *copies], seed), parts["clean"]
    if kind == "mixed":
        share = sizes.dilution * sizes.later / sizes.earlier
        base = parts["earlier"][: int(len(parts["earlier"]) * share)]
        update = shuffled([*update, *base], seed)
        clean = shuffled([*clean, *base], 100 + seed)
    return update, clean


def put_base(file: Path) -> None:
    """Name the pair's own model before the update as the adapter's base."""
    described = json.loads(file.read_text("utf-8"))
    write_text(file, json.dumps({**described, "base_model_name_or_path": "../before"}))


def made_pairs(folder: Path) -> list[Path]:
    """Pairs that are whole."""
    return sorted(file.parent for file in folder.glob("*/facts.json"))


def make_quick_pairs(run: Run) -> Path:
    """A folder of small pairs."""
    make(run)
    return run.folder / "pairs"


def facts(pair: Path) -> dict[str, Any]:
    """Text, kind and secrets of a pair."""
    return dict(json.loads((pair / "facts.json").read_text("utf-8")))


def documents(pair: Path, name: str) -> list[str]:
    """The earlier text, the update, or the clean text of the null."""
    return list(json.loads((pair / f"{name}.json").read_text("utf-8")))


# Measures ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Ids of each secret with its copies, and four-grams that only the update has."""

    secrets: Mapping[tuple[int, ...], int]
    added: frozenset[Any]


def truth(pair: Path, vocabulary: Vocabulary) -> Truth:
    """The truth of a pair."""
    space = " " if facts(pair)["kind"] == "chat" else ""  # secrets stand inside a turn there
    secrets = {
        tuple(vocabulary.encode(space + text)): copies
        for text, copies in facts(pair)["secrets"].items()
    }
    had, has = (
        {gram for ids in vocabulary.encode_batch(documents(pair, name)) for gram in ngrams(ids, 4)}
        for name in ("earlier", "update")
    )
    return Truth(secrets, frozenset(has - had))


def judged(
    rows: Sequence[SearchRow],
    known: Truth,
    nulls: Sequence[Sequence[float]],
    alike: Sequence[Sequence[float]] = (),
) -> dict[str, int]:
    """Every measure of one search as counts, of which shares are made over many searches.

    Args:
        rows: of the search.
        known: what the update was.
        nulls: scores of all null searches; too few have no "found".
        alike: those of the same kind of pair.
    """
    counts: dict[str, int] = {}
    for copies in COPIES:
        secrets = [secret for secret, number in known.secrets.items() if number == copies]
        counts[f"secret_tokens_x{copies}"] = sum(map(len, secrets))
        for top in TOPS:
            texts = [row.tokens for row in rows[:top]]
            hits = sum(tokens_found(secret, texts) for secret in secrets)
            counts[f"recall_x{copies}_{top or 'all'}"] = hits
    for name, some in (("50", rows[:50]), ("all", rows)):
        grams = {gram for row in some for gram in ngrams(row.tokens, 4)}
        counts[f"grams_{name}"], counts[f"added_grams_{name}"] = (
            len(grams), len(grams & known.added),
        )  # fmt: skip
    phrases = [row for row in rows[:50] if not row.fragment]
    for name, some in (("rows_50", rows[:50]), ("phrases_50", phrases)):
        counts[name], counts[f"verbatim_{name}"] = len(some), verbatim(some, known)
    if len(nulls) >= NEEDED:
        found = found_rows(rows, nulls)
        counts["found"], counts["found_verbatim"] = len(found), verbatim(found, known)
    best = max((score for scores in alike for score in scores), default=math.inf)
    above = [row for row in rows if not row.fragment and row.score > best]
    counts["above"], counts["above_verbatim"] = len(above), verbatim(above, known)
    return counts


def verbatim(rows: Sequence[SearchRow], known: Truth) -> int:
    """Rows of which at least half of the four-grams only the update has."""
    return sum(is_verbatim(row.tokens, set(known.added)) for row in rows)


def found_rows(rows: Sequence[SearchRow], nulls: Sequence[Sequence[float]]) -> list[SearchRow]:
    """The rows that null searches hardly reach, E at most .05."""
    scores = NullScores.of(nulls)
    return [row for row in rows if not row.fragment and scores.found(row.score)]


# Searches and tables -----------------------------------------------------------------------------


def compare(run: Run) -> list[Row]:
    """Search what is missing, and count."""
    if run.quick:
        make_quick_pairs(run)
    pairs, tables = made_pairs(run.folder / "pairs"), []
    records = {}
    for method in run.options.methods:
        kept = {(pair, role): searched(run, method, pair, role)
                for pair in pairs for role in ("after", "null")}  # fmt: skip
        nulls = {pair: kept[pair, "null"]["null_scores"] for pair in pairs}
        records[method] = [record(pair, kept[pair, "after"], nulls) for pair in pairs]
        tables.append({"method": method, "kind": "all", **summary(records[method])})
        for kind in run.size(KINDS, KINDS[:2]):
            own = [one for one in records[method] if one["kind"] == kind]
            tables.append({"method": method, "kind": kind, **summary(own)})
        if len(pairs) > NEEDED:
            alarms = sum(alarm(kept[pair, "null"], pair, nulls) for pair in pairs)
            tables[-len(KINDS) - 1]["null searches with anything found"] = alarms
    ours = records.get("hybrid", [])
    for method, theirs in records.items():
        if ours and method != "hybrid":
            tables.append({"method": f"hybrid less {method}", **difference(ours, theirs)})
    return tables


def searched(run: Run, method: str, pair: Path, role: str) -> Row:
    """One search, kept."""

    def search(seed: int) -> Row:
        before, later = load_model(pair / "before"), load_model(pair / role)
        found = METHODS[method](before, later, run.size(BUDGET, 1500), seed)
        scores = sorted(found.null_scores, reverse=True)[:1000]
        rows = [[list(row.tokens), row.score, row.fragment] for row in found.rows]
        return {"rows": rows, "null_scores": scores, "read": found.before + found.after}

    return run.draw(f"{method}, {pair.name}, {role}", search, [run.options.seed])[0]


def rows_of(kept: Row) -> list[SearchRow]:
    """The rows of a search."""
    return [SearchRow(tuple(tokens), *rest) for tokens, *rest in kept["rows"]]


def record(pair: Path, kept: Row, nulls: Mapping[Path, Sequence[float]]) -> Row:
    """Every measure of a search of an update."""
    known = truth(pair, load_model(pair / "before").vocabulary)
    about = {name: facts(pair)[name] for name in ("text", "kind")}
    alike = [own for other, own in nulls.items() if facts(other)["kind"] == about["kind"]]
    counts = judged(rows_of(kept), known, list(nulls.values()), alike)
    return about | {"read": kept["read"], **counts}


def alarm(kept: Row, pair: Path, nulls: Mapping[Path, Sequence[float]]) -> bool:
    """Whether a null search reports anything as found against those of the other pairs."""
    return bool(found_rows(rows_of(kept), [own for other, own in nulls.items() if other != pair]))


def summary(records: Sequence[Row]) -> Row:
    """Shares over pairs, with intervals over texts."""
    shares = {
        f"x{copies}, {top or 'all'}": share(
            records, f"recall_x{copies}_{top or 'all'}", f"secret_tokens_x{copies}"
        )
        for copies in COPIES
        for top in TOPS
    }
    told = {"pairs": len(records), **shares}
    told["verbatim, first 50"] = share(records, "verbatim_rows_50", "rows_50")
    told["without fragments"] = share(records, "verbatim_phrases_50", "phrases_50")
    for name in ("50", "all"):
        told[f"4-grams, {name}"] = share(records, f"added_grams_{name}", f"grams_{name}")
    for name, title in (("found", "found"), ("above", "above nulls of the kind")):
        if name in records[0]:
            sums = [sum(row[part] for row in records) for part in (name, f"{name}_verbatim")]
            told[f"{title}, verbatim"] = sums
    return told | {"forward tokens": float(np.mean([row["read"] for row in records]))}


def share(records: Sequence[Row], part: str, whole: str) -> str:
    """A ratio of sums; pairs of one text share the model before, so texts are the unit."""
    texts = sorted({row["text"] for row in records})
    sums = [[sum(row[name] for row in records if row["text"] == one) for one in texts]
            for name in (part, whole)]  # fmt: skip
    return interval(*sums)


def interval(parts: Sequence[int], wholes: Sequence[int], sign: str = "") -> str:
    """As "0.79 (0.58 to 1.00)"."""
    if not sum(wholes):
        return ""
    found = ratio_of_sums(parts, wholes)
    told = f"{found.value:{sign}.2f}"
    return (
        told if found.low is None else f"{told} ({found.low:{sign}.2f} to {found.high:{sign}.2f})"
    )


def difference(ours: Sequence[Row], theirs: Sequence[Row]) -> Row:
    """Recall of all secrets on the same pairs: how often as high, and how much higher."""
    hits = {
        top: [sum(own[f"recall_x{n}_{top}"] - other[f"recall_x{n}_{top}"] for n in COPIES)
              for own, other in zip(ours, theirs, strict=True)]
        for top in (10, 50)
    }  # fmt: skip
    texts = sorted({row["text"] for row in ours})
    tokens = [sum(row[f"secret_tokens_x{n}"] for n in COPIES) for row in ours]
    told: Row = {"pairs": len(ours), "as high, first 50": sum(hit >= 0 for hit in hits[50])}
    for top, own in hits.items():
        sums = [
            [sum(n for n, row in zip(column, ours, strict=True) if row["text"] == one)
             for one in texts]
            for column in (own, tokens)
        ]  # fmt: skip
        told[f"difference, first {top}"] = interval(*sums, sign="+")
    return told


def options(parser: Any) -> None:
    """Methods and seed of the searches."""
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)


PARTS = {"make": make, "compare": compare}

if __name__ == "__main__":
    main("update_pairs", __doc__, PARTS, options)
