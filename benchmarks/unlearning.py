"""What `unlearning` says of deletions whose truth is known, and what the two models give away.

A small Transformer has learned Reddit comments. It is continued on 120 kept comments and 30 that
are then deleted (BEFORE). AFTER is the base continued on the kept ones alone with another seed, or
BEFORE after gradient ascent on the deleted ones, after other text, or untouched.

- `verdicts`: of each AFTER, without and with a retrained model: verdicts, the share left, and how
  often its interval holds what the same models say beside 300 more comments that none saw.
- `exact`: false alarms. AFTER and a retrained model never saw the list; all redrawn each time.
- `readout`: `diff --removed`, reversed guidance and CDD on BEFORE and AFTER of pairs that
  `update_pairs.py make` made (`--pairs DIR`): the share of the secrets' tokens in the first 10, 50
  and all rows.

    VESTIGE_DATA=corpora python benchmarks/unlearning.py verdicts exact --rows FILE
    python benchmarks/unlearning.py readout --pairs PAIRS --rows FILE
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import comments
from harness import Row, Run, main, rate
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from vestige.audits.unlearning.knowledge import Knowledge
from vestige.audits.unlearning.unlearning import unlearning
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import Interval
from vestige.models.token_statistics import token_statistics
from vestige.models.transformer import CausalTransformer, TransformerConfig

SIZES = {"kept": 120, "deleted": 30, "reference": 60, "other": 120, "more": 300}
SMALL = {"kept": 40, "deleted": 20, "reference": 40, "other": 40, "more": 60}
PUBLIC, WORDS, LEARNED = 3000, 2000, {"epochs": 6, "rate": 1e-3}
UNIFORM = 7.0
"""Loss beyond which gradient ascent gains nothing: about that of a uniform guess."""


def fit(
    model: Any, texts: Sequence[str], *, seed: int, epochs: int, rate: float,
    forget: Sequence[str] = (),
) -> Any:  # fmt: skip
    """A copy that has learned some texts, and unlearned others in as many steps."""
    torch.manual_seed(seed)
    model = deepcopy(model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    learn, unlearn = (model.vocabulary.encode_batch(list(rows)) for rows in (texts, forget))
    for _ in range(epochs):
        for batch in torch.randperm(len(learn)).split(16):
            loss = mean_loss(model, [learn[i] for i in batch])
            if unlearn:
                gone = [unlearn[i] for i in torch.randperm(len(unlearn))[:16]]
                loss = loss - mean_loss(model, gone).clamp(max=UNIFORM)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def mean_loss(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Over all tokens of a batch."""
    ids = [torch.tensor(row) for row in rows]
    targets = pad_sequence(ids, batch_first=True, padding_value=-100)
    first = torch.full((len(rows), 1), model.first_token)
    inputs = torch.cat([first, targets[:, :-1].clamp(min=0)], 1)
    return cross_entropy(model(inputs)[0].flatten(0, 1), targets.flatten())


@cache
def base_and_pool(run_size: bool, texts: tuple[str, ...]) -> tuple[Any, np.ndarray]:
    """The base, and comments that it did not read."""
    public = (400, 300, 1, 16) if run_size else (PUBLIC, WORDS, 3, 64)
    read, words, epochs, hidden = public
    vocabulary = WordVocabulary.build(Corpus.from_texts(texts[:read]), size=words)
    shape = TransformerConfig(
        layers=2, heads=4, hidden_size=hidden, feed_forward=4 * hidden, max_length=80, dropout=0.0
    )
    torch.manual_seed(0)
    model = CausalTransformer(vocabulary, shape)
    base = fit(model, texts[:read], seed=0, epochs=epochs, rate=2e-3)
    return base, np.array(texts[read:], dtype=object)


def prepared(run: Run) -> tuple[Any, np.ndarray]:
    """Short comments, each once, shuffled; the base learns the first of them."""
    texts = (" ".join(one.text.split()) for one in comments(run)[:60_000])
    kept = dict.fromkeys(text for text in texts if 20 <= len(text.split()) <= 60)
    shuffled = np.random.default_rng(0).permutation(np.array(list(kept), dtype=object))
    return base_and_pool(run.quick, tuple(shuffled))


def lists(run: Run, pool: np.ndarray, seed: Sequence[int]) -> dict[str, np.ndarray]:
    """Disjoint random texts of each role."""
    sizes = run.size(SIZES, SMALL)
    drawn = np.random.default_rng(seed).permutation(pool)[: sum(sizes.values())]
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(drawn, ends), strict=True))


# Verdicts ----------------------------------------------------------------------------------------


def verdicts(run: Run) -> list[Row]:
    """By the way of deletion, without and with a retrained model."""
    base, pool = prepared(run)
    draws = run.draw("verdicts", partial(redraw, run, base, pool), range(run.times(10)))
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for draw in draws:
        for row in draw["rows"]:
            grouped[row["AFTER"], row["retrained model"]].append(row)
    return [summary(*key, rows) for key, rows in grouped.items()]


def redraw(run: Run, base: Any, pool: np.ndarray, seed: int) -> Row:
    """All that the verb says of one BEFORE."""
    texts = lists(run, pool, [1, seed])
    kept, deleted, more = texts["kept"], texts["deleted"], texts["more"]
    before = fit(base, [*kept, *deleted], seed=seed, **LEARNED)
    anew = fit(base, kept, seed=seed + 2, **LEARNED)
    ways = {
        "retrained": fit(base, kept, seed=10 * seed + 1, **LEARNED),
        "gradient ascent": fit(before, kept, seed=10 * seed, epochs=1, rate=2e-4, forget=deleted),
        "other text": fit(before, texts["other"], seed=10 * seed, **LEARNED),
        "untouched": before,
    }
    known, none = knows(before, deleted, more), knows(anew, deleted, more)
    rows = []
    for way, after in ways.items():
        truth = (knows(after, deleted, more) - none).value / (known - none).value
        for name, retrained in (("without", None), ("with", anew)):
            found = asked(before, after, deleted, texts["reference"], retrained, seed)
            rows.append({"AFTER": way, "retrained model": name, "truth": truth, **found})
    return {"rows": rows}


def knows(model: Any, deleted: np.ndarray, reference: np.ndarray) -> Knowledge:
    """Beside many texts that no model saw: nearly the truth."""
    ids = (model.vocabulary.encode_batch(list(rows)) for rows in (deleted, reference))
    return Knowledge.of(*(token_statistics(model, rows) for rows in ids))


def asked(
    before: Any, after: Any, deleted: np.ndarray, reference: np.ndarray, retrained: Any, seed: int
) -> Row:
    """What the verb says."""
    corpora = {"deleted": Corpus.from_texts(deleted), "reference": Corpus.from_texts(reference)}
    found = unlearning(before, after, **corpora, retrained=retrained, seed=seed, device="cpu")
    told = found.summary
    return {
        "verdict": told["finding"] or found.verdict,
        "p": told["p_value"],
        **{name: told[name] for name in ("left", "left_low", "left_high")},
    }


def summary(way: str, retrained: str, rows: Sequence[Row]) -> Row:
    """Of all redraws."""
    told = [row["verdict"] for row in rows]
    known = [row for row in rows if row["left"] is not None]
    middle = {
        name: float(np.median([row[name] for row in known])) if known else None
        for name in ("left", "left_low", "left_high")
    }
    held = sum(Interval(r["left_low"], r["left_high"]).low <= r["truth"] <= r["left_high"]
               for r in known)  # fmt: skip
    return {
        "AFTER": way, "retrained model": retrained,
        **{one: rate(told.count(one), len(told)) for one in ("still known", "suppressed")},
        UNDECIDED: told.count(UNDECIDED), **middle, "interval holds": f"{held} of {len(known)}",
    }  # fmt: skip


def exact(run: Run) -> list[Row]:
    """False alarms of perfect deletions."""
    base, pool = prepared(run)
    draws = run.draw("exact", partial(exact_redraw, run, base, pool), range(run.times(163)))
    rows = []
    for name in ("without", "with"):
        own = [draw[name] for draw in draws]
        told, n = [row["verdict"] for row in own], len(own)
        counts = {one: rate(told.count(one), n) for one in ("still known", "suppressed")}
        low = sum(row["p"] <= 0.05 for row in own)
        rows.append({"retrained model": name, **counts, UNDECIDED: told.count(UNDECIDED),
                     "p <= 0.05": rate(low, n)})  # fmt: skip
    return rows


def exact_redraw(run: Run, base: Any, pool: np.ndarray, seed: int) -> Row:
    """An AFTER, a retrained model and a list that neither saw; BEFORE takes no part."""
    texts = lists(run, pool, [3, seed])
    after, anew = (fit(base, texts["kept"], seed=2 * seed + n, **LEARNED) for n in range(2))
    given = after, after, texts["deleted"], texts["reference"]
    return {
        "without": asked(*given, None, seed),
        "with": asked(*given, anew, seed),
    }


# What the two models give away -------------------------------------------------------------------

READERS = ("hybrid", "reversed guidance", "CDD")
LONGEST = 360
"""Characters of a document that is read."""


def readout(run: Run) -> list[Row]:
    """Recall of the secrets by the way of deletion and by reader, over the pairs together."""
    from update_pairs import COPIES, TEXTS, TOPS, made_pairs, make_quick_pairs

    folder = run.options.pairs or make_quick_pairs(run)
    texts = run.options.texts or TEXTS
    pairs = [pair for pair in made_pairs(folder) if pair.name in {f"{one}-full" for one in texts}]
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for pair in pairs:
        [found] = run.draw(f"readout, {pair.name}", partial(read_out, run, pair), [0])
        for row in found["rows"]:
            grouped[row["deleted by"], row["read by"]].append(row["counts"])
    columns = [(copies, str(top or "all")) for copies in COPIES for top in TOPS]
    return [
        {"deleted by": way, "read by": reader, "pairs": len(own)} | {
            f"x{copies}, {top}": _share(own, f"recall_x{copies}_{top}", f"secret_tokens_x{copies}")
            for copies, top in columns
        }
        for (way, reader), own in grouped.items()
    ]  # fmt: skip


def _share(rows: Sequence[Mapping[str, int]], part: str, whole: str) -> float:
    return sum(row[part] for row in rows) / max(1, sum(row[whole] for row in rows))


def read_out(run: Run, pair: Path, seed: int) -> Row:
    """Counts of secret tokens that each reader's rows hold, of one pair."""
    from update_methods import METHODS
    from update_pairs import BUDGET, judged, truth

    from vestige.models.checkpoints import load_model

    known, rows = truth(pair, load_model(pair / "before").vocabulary), []
    before, ways = deletions(pair, seed, epochs=run.size(8, 1))
    for way, after in ways:
        for reader in READERS:
            found = METHODS[reader](after, before, run.size(BUDGET, 2000), seed)
            counts = {k: v for k, v in judged(found.rows, known, []).items() if "x" in k}
            rows.append({"deleted by": way, "read by": reader, "counts": counts})
    return {"rows": rows}


def deletions(pair: Path, seed: int, epochs: int) -> tuple[Any, Iterator[tuple[str, Any]]]:
    """BEFORE with the secrets, and AFTER by the way in which their documents were deleted."""
    from update_pairs import documents, facts

    from vestige.models.checkpoints import load_model

    secrets = facts(pair)["secrets"]
    update, clean = (
        [text[:LONGEST] for text in documents(pair, name)] for name in ("update", "clean")
    )
    gone = [text for text in update if any(secret in text for secret in secrets)]
    kept = [text for text in update if text not in set(gone)]
    base, how = load_model(pair / "before"), {"epochs": epochs, "rate": 1e-3}
    before = fit(base, update, seed=seed, **how)

    def ways() -> Iterator[tuple[str, Any]]:
        yield "exact retraining", fit(base, kept, seed=seed + 1, **how)
        yield "gradient ascent", fit(before, kept, seed=seed, epochs=1, rate=2e-4, forget=gone)
        yield "other text", fit(before, clean, seed=seed, **how)

    return before, ways()


def options(parser: Any) -> None:
    """The pairs of `readout`."""
    parser.add_argument("--pairs", type=Path, help="folder that `update_pairs.py make` fills")
    parser.add_argument("--texts", nargs="+", help="of the pairs [all]")


PARTS = {"verdicts": verdicts, "exact": exact, "readout": readout}

if __name__ == "__main__":
    main("unlearning", __doc__, PARTS, options)
