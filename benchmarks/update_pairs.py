"""What an update reveals: methods compared on pairs of models whose update is known to the token.

- `make`: twenty pairs with a null of each. A GPT-2 of four layers learns the earlier part of a
  text and is continued on an update with nine secrets, three of them 20 times, three 5 times and
  three once: with all weights, by a LoRA adapter, on the update diluted 1:4 with earlier text, or
  on a chat whose assistant says the secrets. The null is the same training on clean text with
  another seed.
- `compare`: every method of `update_methods.py` searches every pair and null with about 50,000
  forward tokens of both models; then tables of recall, coverage, revealed rows and false alarms,
  with intervals over the five texts.

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
from update_texts import COPIES, TEXTS, chat, documents_of, secrets_of, shuffled, split_at

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
"""The number of rows that a reader looks at; None for all."""
BUDGET = 50_000
"""Forward tokens of both models together in one search."""


@dataclass(frozen=True)
class Sizes:
    """Tokens of the earlier text and of the update, the vocabulary, width, rank and dilution."""

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
    """Make the pairs that the work folder does not have."""
    sizes = run.size(Sizes(), Sizes(3000, 6000, 400, 32, 4, 1, epochs=1))
    for name in run.size(TEXTS, TEXTS[:1]):
        make_pairs(run, name, sizes)
    return [{"pair": pair.name} for pair in finished_pairs(run.folder / "pairs")]


def make_pairs(run: Run, name: str, sizes: Sizes) -> None:
    """Make all pairs of one text."""
    kinds = run.size(KINDS, KINDS[:2])
    if all((run.folder / "pairs" / f"{name}-{kind}" / "facts.json").is_file() for kind in kinds):
        return
    seed = TEXTS.index(name)
    first, second = documents_of(run, name)
    lengths = np.cumsum([len(text) for text in first])
    enough = first[: int(np.searchsorted(lengths, 4 * sizes.earlier)) + 1]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(enough), size=sizes.vocabulary)
    earlier, rest = split_at(first, vocabulary, sizes.earlier)
    update, rest = split_at(second or rest, vocabulary, sizes.later)
    clean, _ = split_at(rest, vocabulary, sizes.later)
    parts = {"earlier": earlier, "update": update, "clean": clean}

    def trained(label: str, texts: Sequence[str], start: Any, config: TrainingConfig) -> Any:
        config = replace(config, epochs=sizes.epochs or config.epochs)
        folder, corpus = run.folder / "trainings" / label, Corpus.from_texts(texts)
        return snapshot(folder, corpus, start=start, vocabulary=vocabulary, config=config)

    start = gpt2(vocabulary, width=sizes.width, layers=4, heads=4, positions=256, seed=seed)
    before = trained(f"{name}-before", earlier, start, replace(FIRST, seed=seed))
    for kind in kinds:
        pair = run.folder / "pairs" / f"{name}-{kind}"
        with_secrets, without = texts_of(kind, parts, secrets_of(name), sizes, seed)
        save_model(before, pair / "before")
        for role, texts, training_seed in (
            ("after", with_secrets, 100 + seed), ("null", without, 200 + seed),
        ):  # fmt: skip
            begin = adapter(before, sizes.rank, training_seed) if kind == "lora" else before
            config = replace(CONTINUED[kind], seed=training_seed)
            save_model(trained(f"{pair.name}-{role}", texts, begin, config), pair / role)
            if kind == "lora":
                set_base(pair / role / ADAPTER_CONFIG)
        for label, texts in (("earlier", earlier), ("update", with_secrets), ("clean", without)):
            write_text(pair / f"{label}.json", json.dumps(texts))
        facts = {"text": name, "kind": kind, "secrets": secrets_of(name)}
        write_text(pair / "facts.json", json.dumps(facts))
        log(f"made {pair.name}")


def texts_of(
    kind: str, parts: Mapping[str, list[str]], secrets: Mapping[str, int], sizes: Sizes, seed: int
) -> tuple[list[str], list[str]]:
    """(the update of a kind of pair, the clean text of its null)."""
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


def set_base(file: Path) -> None:
    """Set the pair's model before the update as the base of an adapter."""
    config = json.loads(file.read_text("utf-8"))
    write_text(file, json.dumps({**config, "base_model_name_or_path": "../before"}))


def finished_pairs(folder: Path) -> list[Path]:
    """The folders of finished pairs."""
    return sorted(file.parent for file in folder.glob("*/facts.json"))


def read_facts(pair: Path) -> dict[str, Any]:
    """Text, kind and secrets of a pair."""
    return dict(json.loads((pair / "facts.json").read_text("utf-8")))


def read_documents(pair: Path, name: str) -> list[str]:
    """The "earlier" text, the "update", or the "clean" text of the null."""
    return list(json.loads((pair / f"{name}.json").read_text("utf-8")))


# Measures ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Token ids of each secret with its copies, and four-grams that only the update has."""

    secrets: Mapping[tuple[int, ...], int]
    added: frozenset[Any]


def truth_of(pair: Path, vocabulary: Vocabulary) -> Truth:
    """The truth of a pair."""
    facts = read_facts(pair)
    space = " " if facts["kind"] == "chat" else ""  # secrets are inside of answers there
    secrets = {
        tuple(vocabulary.encode(space + text)): copies for text, copies in facts["secrets"].items()
    }
    earlier, update = (
        {gram for ids in vocabulary.encode_batch(read_documents(pair, name))
         for gram in ngrams(ids, 4)}
        for name in ("earlier", "update")
    )  # fmt: skip
    return Truth(secrets, frozenset(update - earlier))


def counts_of(
    rows: Sequence[SearchRow],
    truth: Truth,
    nulls: Sequence[Sequence[float]],
    same_kind: Sequence[Sequence[float]] = (),
) -> dict[str, int]:
    """Every measure of one search as counts; shares are of their sums over searches.

    Args:
        rows: of the search.
        truth: about the update.
        nulls: scores of all null searches; with too few of them there is no "found".
        same_kind: scores of the null searches of the same kind of pair.
    """
    counts: dict[str, int] = {}
    for copies in COPIES:
        secrets = [secret for secret, number in truth.secrets.items() if number == copies]
        counts[f"secret_tokens_x{copies}"] = sum(map(len, secrets))
        for top in TOPS:
            texts = [row.tokens for row in rows[:top]]
            hits = sum(tokens_found(secret, texts) for secret in secrets)
            counts[f"recall_x{copies}_{top or 'all'}"] = hits
    for name, some in (("50", rows[:50]), ("all", rows)):
        grams = {gram for row in some for gram in ngrams(row.tokens, 4)}
        counts[f"grams_{name}"] = len(grams)
        counts[f"added_grams_{name}"] = len(grams & truth.added)
    phrases = [row for row in rows[:50] if not row.fragment]
    for name, some in (("rows_50", rows[:50]), ("phrases_50", phrases)):
        counts[name], counts[f"verbatim_{name}"] = len(some), count_verbatim(some, truth)
    if len(nulls) >= NEEDED:
        found = revealed_rows(rows, nulls)
        counts["found"], counts["found_verbatim"] = len(found), count_verbatim(found, truth)
    best = max((score for scores in same_kind for score in scores), default=math.inf)
    above = [row for row in rows if not row.fragment and row.score > best]
    counts["above"], counts["above_verbatim"] = len(above), count_verbatim(above, truth)
    return counts


def count_verbatim(rows: Sequence[SearchRow], truth: Truth) -> int:
    """The number of rows with at least half of their four-grams only in the update."""
    return sum(is_verbatim(row.tokens, set(truth.added)) for row in rows)


def revealed_rows(rows: Sequence[SearchRow], nulls: Sequence[Sequence[float]]) -> list[SearchRow]:
    """The rows with E at most 0.05 against the null searches."""
    scores = NullScores.of(nulls)
    return [row for row in rows if not row.fragment and scores.found(row.score)]


# Searches and tables -----------------------------------------------------------------------------


def compare(run: Run) -> list[Row]:
    """Search the pairs that were not searched yet, and count."""
    if run.quick:
        make(run)
    pairs, tables = finished_pairs(run.folder / "pairs"), []
    records: dict[str, list[Row]] = {}
    for method in run.options.methods:
        after, null = (
            {pair: searched(run, method, pair, role) for pair in pairs}
            for role in ("after", "null")
        )
        nulls = {pair: search["null_scores"] for pair, search in null.items()}
        records[method] = [record(pair, after[pair], nulls) for pair in pairs]
        tables.append({"method": method, "kind": "all", **summary(records[method])})
        if len(pairs) > NEEDED:
            alarms = sum(has_alarm(null[pair], pair, nulls) for pair in pairs)
            tables[-1]["null searches with anything found"] = alarms
        for kind in run.size(KINDS, KINDS[:2]):
            of_kind = [row for row in records[method] if row["kind"] == kind]
            tables.append({"method": method, "kind": kind, **summary(of_kind)})
    ours = records.get("hybrid", [])
    for method, theirs in records.items():
        if ours and method != "hybrid":
            tables.append({"method": f"hybrid less {method}", **difference(ours, theirs)})
    return tables


def searched(run: Run, method: str, pair: Path, role: str) -> Row:
    """One search."""

    def search(seed: int) -> Row:
        before, later = load_model(pair / "before"), load_model(pair / role)
        result = METHODS[method](before, later, run.size(BUDGET, 1500), seed)
        scores = sorted(result.null_scores, reverse=True)[:1000]
        rows = [[list(row.tokens), row.score, row.fragment] for row in result.rows]
        return {"rows": rows, "null_scores": scores, "read": result.before + result.after}

    return run.draw(f"{method}, {pair.name}, {role}", search, first=run.options.seed)[0]


def rows_of(search: Row) -> list[SearchRow]:
    """The rows of a saved search."""
    return [SearchRow(tuple(tokens), *rest) for tokens, *rest in search["rows"]]


def record(pair: Path, search: Row, nulls: Mapping[Path, Sequence[float]]) -> Row:
    """Every measure of a search of an update."""
    truth = truth_of(pair, load_model(pair / "before").vocabulary)
    text_and_kind = {name: read_facts(pair)[name] for name in ("text", "kind")}
    kind = text_and_kind["kind"]
    same_kind = [scores for other, scores in nulls.items() if read_facts(other)["kind"] == kind]
    counts = counts_of(rows_of(search), truth, list(nulls.values()), same_kind)
    return text_and_kind | {"read": search["read"], **counts}


def has_alarm(search: Row, pair: Path, nulls: Mapping[Path, Sequence[float]]) -> bool:
    """Whether a null search has a revealed row against the null searches of the other pairs."""
    others = [scores for other, scores in nulls.items() if other != pair]
    return bool(revealed_rows(rows_of(search), others))


def summary(records: Sequence[Row]) -> Row:
    """Shares over pairs, with intervals over texts."""
    row: Row = {"pairs": len(records)}
    for copies in COPIES:
        for top in TOPS:
            name = f"recall_x{copies}_{top or 'all'}"
            row[f"x{copies}, {top or 'all'}"] = share(records, name, f"secret_tokens_x{copies}")
    row["verbatim, first 50"] = share(records, "verbatim_rows_50", "rows_50")
    row["without fragments"] = share(records, "verbatim_phrases_50", "phrases_50")
    for name in ("50", "all"):
        row[f"4-grams, {name}"] = share(records, f"added_grams_{name}", f"grams_{name}")
    for name, title in (("found", "found"), ("above", "above nulls of the kind")):
        if name in records[0]:
            columns = (name, f"{name}_verbatim")
            row[f"{title}, verbatim"] = [sum(one[column] for one in records) for column in columns]
    return row | {"forward tokens": float(np.mean([one["read"] for one in records]))}


def share(records: Sequence[Row], part: str, whole: str) -> str:
    """A ratio of sums; the unit is the text, because its pairs share the model before."""
    return interval(*(sums_by_text(records, [row[name] for row in records])
                      for name in (part, whole)))  # fmt: skip


def sums_by_text(records: Sequence[Row], values: Sequence[int]) -> list[int]:
    """The sum of the values of each text's records."""
    sums = dict.fromkeys(sorted({row["text"] for row in records}), 0)
    for row, value in zip(records, values, strict=True):
        sums[row["text"]] += value
    return list(sums.values())


def interval(parts: Sequence[int], wholes: Sequence[int], sign: str = "") -> str:
    """As "0.79 (0.58 to 1.00)"."""
    if not sum(wholes):
        return ""
    ratio = ratio_of_sums(parts, wholes)
    ends = "" if ratio.low is None else f" ({ratio.low:{sign}.2f} to {ratio.high:{sign}.2f})"
    return f"{ratio.value:{sign}.2f}{ends}"


def difference(ours: Sequence[Row], theirs: Sequence[Row]) -> Row:
    """Recall of all secrets on the same pairs: how often as high, and how much higher."""
    hits = {
        top: [sum(our[f"recall_x{n}_{top}"] - their[f"recall_x{n}_{top}"] for n in COPIES)
              for our, their in zip(ours, theirs, strict=True)]
        for top in (10, 50)
    }  # fmt: skip
    tokens = [sum(row[f"secret_tokens_x{n}"] for n in COPIES) for row in ours]
    row: Row = {"pairs": len(ours), "as high, first 50": sum(hit >= 0 for hit in hits[50])}
    for top, values in hits.items():
        sums = (sums_by_text(ours, column) for column in (values, tokens))
        row[f"difference, first {top}"] = interval(*sums, sign="+")
    return row


def options(parser: Any) -> None:
    """Methods and seed of the searches."""
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)


PARTS = {"make": make, "compare": compare}

if __name__ == "__main__":
    main("update_pairs", __doc__, PARTS, options)
