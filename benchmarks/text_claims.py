"""What `vestige membership` claims where the truth is known: nulls, shifts, bounds on the share.

A small GPT-2 learns Reddit comments; each redraw is a whole pipeline: it is continued on 300 others
(two epochs unless told), and the verb audits 40 comments against 300.

none    never-used comments from the same draw as the reference
time    never-used comments of the last fifth by time, against a reference of the first fifth
length  never-used comments of over 90 words, against a reference of under 60
10, 50, 100 %   so many of the 40 were used; 40 other used ones are known

For each: the share of p-values at or below 0.05 (of texts that were not used), how often the list
test and both tests are significant, how often the lists are comparable and the verdict is
undecided, and how often the bounds hold.

    VESTIGE_DATA=data python benchmarks/text_claims.py --work DIR [--redraws 15] [--epochs 2]

DIR keeps the models: another run with the same options goes on there.
"""

import argparse
import gzip
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import vestige
from reproduction.updates.subwords import gpt2
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.preparation.options import TrainingOptions

TUNED, LISTED, REFERENCE, KNOWN = 300, 40, 300, 40
WORDS = (15, 200)
READ = {"batch_size": 16, "batching": "documents", "sequence_length": 256}


def comments():
    """Comments in the order of their time."""
    path = Path(os.environ["VESTIGE_DATA"]) / "reddit_college" / "comments.jsonl.gz"
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    rows.sort(key=lambda row: (row["created"], row["id"]))
    texts = (" ".join(row["body"].split()) for row in rows)
    kept = dict.fromkeys(text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1])
    return np.array(list(kept), dtype=object)


def base_model(texts, work):
    """A GPT-2 of 0.7 M parameters, trained on 6,000 comments by `vestige train`."""
    start, out = work / "start", work / "base"
    if not out.exists():
        corpus = Corpus.from_texts(texts)
        vocabulary = SubwordVocabulary.train_bpe(corpus, size=2048)
        gpt2(vocabulary, 96, 0).network.save_pretrained(start)
        vocabulary.save(start)
        how = TrainingOptions(epochs=4, learning_rate=1.5e-3, **READ)
        vestige.train(corpus, out=out, start=start, training=how)
    return out / "model"


def audit(row, model, base, work, seed, **lists):
    used = row.pop("used", 0)
    corpora = {name: Corpus.from_texts(texts) for name, texts in lists.items()}
    for name, given in (("error-zone", base), ("log-ratio", base), ("loss", None)):
        found = vestige.membership(
            model, base=given, score=name, statistics=work / "statistics", seed=seed, **corpora
        )
        told = found.summary
        audited = [row for row in found.rows if row["kind"] == "audited"][used:]
        never = np.array([row["p_value"] for row in audited])
        comparable = next(one for one in found.claim.checks if one.name == "comparable")
        yield {
            **row,
            "score": name,
            "used": used,
            "low": int((never <= 0.05).sum()),
            "never": never.size,
            "list": told["list_p_value"] <= 0.05,
            "shown": told["p_value"] <= 0.05,
            "comparable": comparable.state == "passed",
            "verdict": told["verdict"],
            "named": told["named"],
            "wrong": sum(row["named"] for row in audited),
            "at_least": told["at_least"],
            "at_most": told["at_most"],
        }


def redraw(seed, texts, base, work, epochs):
    """Audits of one fine-tune."""
    chance = np.random.default_rng([7, seed])
    order = chance.permutation(texts.size)
    tuned, rest = texts[order[:TUNED]], np.sort(order[TUNED:])  # by time
    model = work / f"tuned-{epochs}-{seed}"
    if not model.exists():
        how = TrainingOptions(epochs=epochs, learning_rate=1e-3, **READ)
        corpus = Corpus.from_texts(tuned)
        vestige.train(corpus, out=model, from_=base, training=how, hold_out=0, seed=seed)
    words = np.array([len(text.split()) for text in texts[rest]])
    fifth = rest.size // 5
    pools = {
        "none": (rest, rest),
        "time": (rest[-fifth:], rest[:fifth]),
        "length": (rest[words > 90], rest[words < 60]),
    }
    for name, (pool, against) in pools.items():
        own = chance.permutation(pool)[:LISTED]
        other = np.setdiff1d(chance.permutation(against)[: REFERENCE + LISTED], own)
        other = chance.permutation(other)[:REFERENCE]
        lists = {"texts": texts[own], "reference": texts[other]}
        yield from audit({"case": name}, model / "model", base, work, seed, **lists)
    for share in (0.0, 0.1, 0.5, 1.0):
        used = round(share * LISTED)
        never = chance.permutation(rest)[: LISTED + REFERENCE]
        lists = {
            "texts": [*tuned[:used], *texts[never[: LISTED - used]]],
            "reference": texts[never[LISTED:]],
            "used": tuned[LISTED : LISTED + KNOWN],
        }
        row = {"case": f"{share:.0%} used", "used": used}
        yield from audit(row, model / "model", base, work, seed, **lists)


def show(rows):
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["case"], row["score"]].append(row)
    heads = ("case", "score", "audits", "never", "P(p<=.05)", "list", "shown", "comparable",
             "undecided", "flagged", "wrong", "at least", "holds", "at most",
             "holds")  # fmt: skip
    print("| " + " | ".join(heads) + " |")
    print("|" + " --- |" * len(heads))
    for (case, score), own in grouped.items():
        never = sum(row["never"] for row in own)
        bound = [row for row in own if row["at_most"] is not None]

        def mean(key, rows=own):
            return f"{np.mean([row[key] for row in rows]):.2f}" if rows else ""

        def holds(test, rows=own):
            return f"{np.mean([test(row) for row in rows]):.2f}" if rows else ""

        cells = (
            case, score, len(own), never,
            f"{sum(row['low'] for row in own) / never:.3f}" if never else "",
            mean("list"), mean("shown"), mean("comparable"),
            holds(lambda row: row["verdict"] == UNDECIDED), mean("named"), mean("wrong"),
            mean("at_least"), holds(lambda row: row["at_least"] <= row["used"]),
            mean("at_most", bound), holds(lambda row: row["at_most"] >= row["used"], bound),
        )  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--work", type=Path, required=True)
    asked.add_argument("--redraws", type=int, default=15)
    asked.add_argument("--epochs", type=int, default=2)
    given = asked.parse_args()
    texts = comments()
    chosen = np.random.default_rng(0).permutation(texts.size)
    base = base_model(texts[chosen[:6000]], given.work)
    rest = texts[np.sort(chosen[6000:])]
    rows = []
    for seed in range(given.redraws):
        rows += redraw(seed, rest, base, given.work, given.epochs)
        print(f"{seed + 1} redraws", flush=True)
        show(rows)


if __name__ == "__main__":
    main()
