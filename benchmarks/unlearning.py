"""What `unlearning` says of deletions whose truth is known, and what the two models reveal.

A small Transformer has learned Reddit comments. It is continued on 120 comments that stay and 30
that are then deleted (BEFORE). AFTER is the base continued on the comments that stay with another
seed, or BEFORE after gradient ascent on the deleted ones, after other text, or unchanged.

- `verdicts`: for each AFTER, without and with a retrained model: verdicts, the remaining share, and
  how often its interval contains the share measured with 300 more comments that no model saw.
- `exact`: false alarms. AFTER and a retrained model never saw the list; all is sampled anew.
- `readout`: `diff --removed`, reversed guidance and CDD on BEFORE and AFTER of pairs that
  `update_pairs.py make` made (`--pairs DIR`): the share of the secrets' tokens in the first 10, 50
  and all rows.

    VESTIGE_DATA=corpora python benchmarks/unlearning.py verdicts exact --rows FILE
    python benchmarks/unlearning.py readout --pairs PAIRS --rows FILE
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import comments
from harness import Row, Run, grouped, main, rate
from networks import padded
from torch.nn.functional import cross_entropy
from update_methods import METHODS
from update_pairs import (
    BUDGET,
    COPIES,
    TEXTS,
    TOPS,
    counts_of,
    finished_pairs,
    make,
    read_documents,
    read_facts,
    truth_of,
)

from vestige.audits.unlearning.knowledge import Knowledge
from vestige.audits.unlearning.unlearning import unlearning
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model
from vestige.models.token_statistics import token_statistics
from vestige.models.transformer import CausalTransformer, TransformerConfig

SIZES = {"kept": 120, "deleted": 30, "reference": 60, "other": 120, "more": 300}
SMALL = {"kept": 40, "deleted": 20, "reference": 40, "other": 40, "more": 60}
PUBLIC, WORDS, LEARNED = 3000, 2000, {"epochs": 6, "rate": 1e-3}
UNIFORM = 7.0
"""The loss beyond which gradient ascent gains nothing: about that of a uniform guess."""
ALARMS = ("still known", "suppressed")


def fit(
    model: Any, texts: Sequence[str], *, seed: int, epochs: int, rate: float,
    forget: Sequence[str] = (),
) -> Any:  # fmt: skip
    """A copy that has learned some texts, and in the same steps unlearned others."""
    torch.manual_seed(seed)
    model = deepcopy(model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    learn, unlearn = (model.vocabulary.encode_batch(list(rows)) for rows in (texts, forget))
    for _ in range(epochs):
        for batch in torch.randperm(len(learn)).split(16):
            loss = mean_loss(model, [learn[i] for i in batch])
            if unlearn:
                forgotten = [unlearn[i] for i in torch.randperm(len(unlearn))[:16]]
                loss = loss - mean_loss(model, forgotten).clamp(max=UNIFORM)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def mean_loss(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """The mean loss over all tokens of a batch."""
    targets = padded(rows)
    first = torch.full((len(rows), 1), model.first_token)
    inputs = torch.cat([first, targets[:, :-1].clamp(min=0)], 1)
    return cross_entropy(model(inputs)[0].flatten(0, 1), targets.flatten())


@cache
def base_and_pool(quick: bool, texts: tuple[str, ...]) -> tuple[Any, np.ndarray]:
    """(the base, the comments that it did not read)."""
    read, words, epochs, hidden = (400, 300, 1, 16) if quick else (PUBLIC, WORDS, 3, 64)
    vocabulary = WordVocabulary.build(Corpus.from_texts(texts[:read]), size=words)
    shape = TransformerConfig(
        layers=2, heads=4, hidden_size=hidden, feed_forward=4 * hidden, max_length=80, dropout=0.0
    )
    torch.manual_seed(0)
    model = CausalTransformer(vocabulary, shape)
    base = fit(model, texts[:read], seed=0, epochs=epochs, rate=2e-3)
    return base, np.array(texts[read:], dtype=object)


def prepare(run: Run) -> tuple[Any, np.ndarray]:
    """The base and its pool, of distinct short comments in random order."""
    texts = (" ".join(comment.text.split()) for comment in comments(run)[:60_000])
    distinct = dict.fromkeys(text for text in texts if 20 <= len(text.split()) <= 60)
    shuffled = np.random.default_rng(0).permutation(np.array(list(distinct), dtype=object))
    return base_and_pool(run.quick, tuple(shuffled))


def sample_lists(run: Run, pool: np.ndarray, seed: Sequence[int]) -> dict[str, np.ndarray]:
    """Disjoint random texts of each role."""
    sizes = run.size(SIZES, SMALL)
    chosen = np.random.default_rng(seed).permutation(pool)[: sum(sizes.values())]
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(chosen, ends), strict=True))


# Verdicts ----------------------------------------------------------------------------------------


def verdicts(run: Run) -> list[Row]:
    """Verdicts by kind of deletion, without and with a retrained model."""
    base, pool = prepare(run)
    draws = run.draw("verdicts", partial(verdict_rows, run, base, pool), run.times(10))
    rows = (row for draw in draws for row in draw["rows"])
    groups = grouped(rows, "AFTER", "retrained model")
    return [summary(*key, rows) for key, rows in groups.items()]


def verdict_rows(run: Run, base: Any, pool: np.ndarray, seed: int) -> Row:
    """All verdicts on one BEFORE."""
    texts = sample_lists(run, pool, [1, seed])
    kept, deleted, more = texts["kept"], texts["deleted"], texts["more"]
    before = fit(base, [*kept, *deleted], seed=seed, **LEARNED)
    retrained = fit(base, kept, seed=seed + 2, **LEARNED)
    deletions = {
        "retrained": fit(base, kept, seed=10 * seed + 1, **LEARNED),
        "gradient ascent": fit(before, kept, seed=10 * seed, epochs=1, rate=2e-4, forget=deleted),
        "other text": fit(before, texts["other"], seed=10 * seed, **LEARNED),
        "untouched": before,
    }
    known, unknown = (knowledge(model, deleted, more) for model in (before, retrained))
    rows = []
    for name, after in deletions.items():
        left = (knowledge(after, deleted, more) - unknown).value / (known - unknown).value
        for with_retrained, model in (("without", None), ("with", retrained)):
            result = audit(before, after, deleted, texts["reference"], model, seed)
            row = {"AFTER": name, "retrained model": with_retrained, "truth": left}
            rows.append(row | result)
    return {"rows": rows}


def knowledge(model: Any, deleted: np.ndarray, reference: np.ndarray) -> Knowledge:
    """What a model knows of the deleted texts, compared with texts that no model saw."""
    ids = (model.vocabulary.encode_batch(list(texts)) for texts in (deleted, reference))
    return Knowledge.of(*(token_statistics(model, rows) for rows in ids))


def audit(
    before: Any, after: Any, deleted: np.ndarray, reference: np.ndarray, retrained: Any, seed: int
) -> Row:
    """The result of the verb."""
    corpora = {"deleted": Corpus.from_texts(deleted), "reference": Corpus.from_texts(reference)}
    result = unlearning(before, after, **corpora, retrained=retrained, seed=seed, device="cpu")
    figures = {name: result.summary[name] for name in ("left", "left_low", "left_high")}
    verdict = result.summary["finding"] or result.verdict
    return {"verdict": verdict, "p": result.summary["p_value"], **figures}


def alarms(rows: Sequence[Row]) -> Row:
    """The rate of each alarm, and the number of undecided audits."""
    verdicts = [row["verdict"] for row in rows]
    counts = {alarm: rate(verdicts.count(alarm), len(verdicts)) for alarm in ALARMS}
    return {**counts, UNDECIDED: verdicts.count(UNDECIDED)}


def summary(after: str, retrained: str, rows: Sequence[Row]) -> Row:
    """Rates and medians over all draws."""
    measured = [row for row in rows if row["left"] is not None]
    medians = {
        name: float(np.median([row[name] for row in measured])) if measured else None
        for name in ("left", "left_low", "left_high")
    }
    covered = sum(row["left_low"] <= row["truth"] <= row["left_high"] for row in measured)
    return {
        "AFTER": after, "retrained model": retrained, **alarms(rows), **medians,
        "interval holds": f"{covered} of {len(measured)}",
    }  # fmt: skip


def exact(run: Run) -> list[Row]:
    """False alarms of perfect deletions."""
    base, pool = prepare(run)
    draws = run.draw("exact", partial(exact_rows, run, base, pool), run.times(163))
    rows = []
    for retrained in ("without", "with"):
        column = [draw[retrained] for draw in draws]
        low = rate(sum(row["p"] <= 0.05 for row in column), len(column))
        rows.append({"retrained model": retrained, **alarms(column), "p <= 0.05": low})
    return rows


def exact_rows(run: Run, base: Any, pool: np.ndarray, seed: int) -> Row:
    """Audits of an AFTER and a retrained model that never saw the list; BEFORE takes no part."""
    texts = sample_lists(run, pool, [3, seed])
    after, retrained = (fit(base, texts["kept"], seed=2 * seed + n, **LEARNED) for n in range(2))
    arguments = after, after, texts["deleted"], texts["reference"]
    return {
        "without": audit(*arguments, None, seed),
        "with": audit(*arguments, retrained, seed),
    }


# What the two models reveal ----------------------------------------------------------------------

ATTACKS = ("hybrid", "reversed guidance", "CDD")
LONGEST = 360
"""Characters of a document that is read."""


def readout(run: Run) -> list[Row]:
    """Recall of the secrets by kind of deletion and attack, over all pairs together."""
    if run.options.pairs is None:
        make(run)
    texts = run.options.texts or TEXTS
    pairs = finished_pairs(run.options.pairs or run.folder / "pairs")
    draws = [
        run.draw(f"readout, {pair.name}", partial(read_out, run, pair))[0]
        for pair in pairs
        if pair.name in {f"{text}-full" for text in texts}
    ]
    groups = grouped((row for draw in draws for row in draw["rows"]), "deleted by", "read by")
    columns = [(copies, str(top or "all")) for copies in COPIES for top in TOPS]
    return [
        {"deleted by": deletion, "read by": attack, "pairs": len(rows)} | {
            f"x{copies}, {top}": _share(rows, f"recall_x{copies}_{top}", f"secret_tokens_x{copies}")
            for copies, top in columns
        }
        for (deletion, attack), rows in groups.items()
    ]  # fmt: skip


def _share(rows: Sequence[Row], part: str, whole: str) -> float:
    parts, wholes = (sum(row["counts"][name] for row in rows) for name in (part, whole))
    return parts / max(1, wholes)


def read_out(run: Run, pair: Path, seed: int) -> Row:
    """Counts of secret tokens in the rows of each attack, for one pair."""
    truth, rows = truth_of(pair, load_model(pair / "before").vocabulary), []
    before, deletions = deletions_of(pair, seed, epochs=run.size(8, 1))
    for deletion, after in deletions:
        for attack in ATTACKS:
            result = METHODS[attack](after, before, run.size(BUDGET, 2000), seed)
            counts = {k: v for k, v in counts_of(result.rows, truth, []).items() if "x" in k}
            rows.append({"deleted by": deletion, "read by": attack, "counts": counts})
    return {"rows": rows}


def deletions_of(pair: Path, seed: int, epochs: int) -> tuple[Any, Iterator[tuple[str, Any]]]:
    """(BEFORE with the secrets, AFTER by the way in which their documents were deleted)."""
    secrets = read_facts(pair)["secrets"]
    update, clean = (
        [text[:LONGEST] for text in read_documents(pair, name)] for name in ("update", "clean")
    )
    deleted = [text for text in update if any(secret in text for secret in secrets)]
    kept = [text for text in update if text not in set(deleted)]
    base, settings = load_model(pair / "before"), {"epochs": epochs, "rate": 1e-3}
    before = fit(base, update, seed=seed, **settings)

    def deletions() -> Iterator[tuple[str, Any]]:
        yield "exact retraining", fit(base, kept, seed=seed + 1, **settings)
        yield "gradient ascent", fit(before, kept, seed=seed, epochs=1, rate=2e-4, forget=deleted)
        yield "other text", fit(before, clean, seed=seed, **settings)

    return before, deletions()


def options(parser: Any) -> None:
    """The pairs of `readout`."""
    parser.add_argument("--pairs", type=Path, help="folder that `update_pairs.py make` fills")
    parser.add_argument("--texts", nargs="+", help="of the pairs [all]")


PARTS = {"verdicts": verdicts, "exact": exact, "readout": readout}

if __name__ == "__main__":
    main("unlearning", __doc__, PARTS, options)
