"""What `vestige unlearning` says of deletions whose truth is known, redrawn.

A small Transformer has learnt Reddit comments. Each redraw is a whole run: it is continued on 120
kept comments and 30 that will be deleted (BEFORE), these are taken out in one way (AFTER), and the
verb asks with 60 comments that no model saw, without and with a retrained model. AFTER is

retrained         the base continued on the kept comments alone, with another seed: nothing is left
gradient ascent   BEFORE, stepping up the loss of the deleted and down that of the kept
other text        BEFORE, continued on 120 other comments
untouched         BEFORE itself: everything is left

Of each: how often it is called still known and suppressed, the share left, and how often its
interval covers what the same models say beside a retrained one and 300 more never-seen comments.
False alarms are counted on more lists: of the models of every second redraw, 20 that none saw; and
with `--exact N` alone on N whole redraws, each of an AFTER, a retrained model and one list.

    VESTIGE_DATA=data python benchmarks/deletion.py [--redraws 60] [--lists 20] [--minutes 10]
    VESTIGE_DATA=data python benchmarks/deletion.py --exact 200 --minutes 30

`--minutes`: no redraw begins after as many.
"""

import argparse
import gzip
import json
import os
import time
from collections import defaultdict
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from vestige.audits.unlearning.knowledge import Knowledge
from vestige.audits.unlearning.unlearning import unlearning
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import Interval, clopper_pearson
from vestige.models.token_statistics import token_statistics
from vestige.models.transformer import CausalTransformer, TransformerConfig

KEPT, DELETED, REFERENCE, OTHER = 120, 30, 60, 120
SHAPE = TransformerConfig(
    layers=2, heads=4, hidden_size=64, feed_forward=256, max_length=80, dropout=0.0
)
LEARNT = {"epochs": 6, "rate": 1e-3}


def comments():
    """Short comments, each once, shuffled."""
    path = Path(os.environ["VESTIGE_DATA"]) / "reddit_college" / "comments.jsonl.gz"
    with gzip.open(path, "rt") as file:
        texts = [" ".join(json.loads(next(file))["body"].split()) for _ in range(60000)]
    kept = dict.fromkeys(text for text in texts if 20 <= len(text.split()) <= 60)
    return np.random.default_rng(0).permutation(np.array(list(kept), dtype=object))


def fit(model, texts, *, seed, epochs, rate, forget=()):
    """A copy that has learnt some texts, and unlearnt others in as many steps."""
    torch.manual_seed(seed)
    model = deepcopy(model).train()
    steps = torch.optim.Adam(model.parameters(), lr=rate)
    learn, unlearn = (model.vocabulary.encode_batch(list(rows)) for rows in (texts, forget))
    for _ in range(epochs):
        order = torch.randperm(len(learn)).split(16)
        for batch in order:
            loss = mean_loss(model, [learn[i] for i in batch])
            if unlearn:
                part = torch.randperm(len(unlearn))[:16]
                # A bounded ascent: past the loss of a uniform guess nothing is gained.
                gone = mean_loss(model, [unlearn[i] for i in part])
                loss = loss - gone.clamp(max=7.0)
            steps.zero_grad()
            loss.backward()
            steps.step()
    return model.eval()


def mean_loss(model, rows):
    """Over all tokens of a batch."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest + 1), model.first_token)
    wanted = torch.full((len(rows), longest), -100)
    for place, ids in enumerate(rows):
        tokens[place, 1 : len(ids) + 1] = wanted[place, : len(ids)] = torch.tensor(ids)
    logits, _ = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def afters(base, before, kept, deleted, other, seed):
    """AFTER by the way that the texts were taken out."""
    yield "retrained", fit(base, kept, seed=seed + 1, **LEARNT)
    yield "gradient ascent", fit(before, kept, seed=seed, epochs=1, rate=2e-4, forget=deleted)
    yield "other text", fit(before, other, seed=seed, **LEARNT)
    yield "untouched", before


def redraw(base, pool, seed):
    """Rows of what the verb says of each way, without and with a retrained model."""
    drawn = np.random.default_rng([1, seed]).permutation(pool)
    sizes = np.cumsum([KEPT, DELETED, REFERENCE, OTHER, 300])
    kept, deleted, reference, other, more = np.split(drawn[: sizes[-1]], sizes[:-1])
    before = fit(base, [*kept, *deleted], seed=seed, **LEARNT)
    anew = fit(base, kept, seed=seed + 2, **LEARNT)
    known = {model: knows(model, deleted, more) for model in (before, anew)}
    for way, after in afters(base, before, kept, deleted, other, 10 * seed):
        own = known[after] if after in known else knows(after, deleted, more)
        truth = (own - known[anew]).value / (known[before] - known[anew]).value
        for name, retrained in (("without", None), ("with", anew)):
            found = asked(before, after, deleted, reference, retrained, seed)
            yield (way, name), {**found, "truth": truth}


def knows(model, deleted, reference):
    """Of many never-seen texts, nearly the truth."""
    ids = (model.vocabulary.encode_batch(list(rows)) for rows in (deleted, reference))
    return Knowledge.of(*(token_statistics(model, rows) for rows in ids))


def asked(before, after, deleted, reference, retrained, seed):
    """What the verb says."""
    found = unlearning(
        before,
        after,
        deleted=Corpus.from_texts(deleted),
        reference=Corpus.from_texts(reference),
        retrained=retrained,
        seed=seed,
        device="cpu",
    )
    left = [found.summary[name] for name in ("left", "left_low", "left_high")]
    return {
        "verdict": found.summary["finding"] or found.verdict,
        "p": found.summary["p_value"],
        "left": None if left[0] is None else (left[0], Interval(*left[1:])),
        "truth": None,
    }


def never_seen(base, pool, seed, lists):
    """Rows of lists that no model saw: one BEFORE, AFTER and retrained model, the lists redrawn."""
    drawn = np.random.default_rng([2, seed]).permutation(pool)
    kept, rest = drawn[:KEPT], drawn[KEPT + DELETED :]
    before = fit(base, drawn[: KEPT + DELETED], seed=seed, **LEARNT)
    after, anew = (fit(base, kept, seed=seed + one, **LEARNT) for one in (1, 2))
    parts = np.array_split(rest[: lists * (DELETED + REFERENCE)], lists)
    for place, part in enumerate(parts):
        for name, retrained in (("without", None), ("with", anew)):
            yield (
                ("retrained, lists redrawn", name),
                asked(before, after, part[:DELETED], part[DELETED:], retrained, place),
            )


def exact(base, pool, seed):
    """Rows of one list and its own models, none of which saw it; BEFORE takes no part in these."""
    drawn = np.random.default_rng([3, seed]).permutation(pool)
    kept, deleted, reference = np.split(drawn[: KEPT + DELETED + REFERENCE], [KEPT, KEPT + DELETED])
    after, anew = (fit(base, kept, seed=2 * seed + one, **LEARNT) for one in range(2))
    for name, retrained in (("without", None), ("with", anew)):
        found = asked(after, after, deleted, reference, retrained, seed)
        yield ("exact, whole redraws", name), found


def table(rows):
    """Markdown, one line a way of deletion."""
    print(
        "| AFTER | retrained model | runs | still known | suppressed | undecided | p ≤ .05 | "
        "share left, median | its interval, median | covers the truth |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for (way, name), found in rows.items():
        verdicts = [one["verdict"] for one in found]
        known = [one for one in found if one["left"] and one["truth"] is not None]
        low, middle, high = (
            np.median([pick(one["left"]) for one in known]) if known else np.nan
            for pick in (lambda x: x[1].low, lambda x: x[0], lambda x: x[1].high)
        )
        covered = sum(one["left"][1].low <= one["truth"] <= one["left"][1].high for one in known)
        cells = [share(verdicts, one) for one in ("still known", "suppressed", UNDECIDED)]
        cells += [rate(sum(one["p"] <= 0.05 for one in found), len(found))]
        cells += [f"{middle:.0%}", f"{low:.0%} to {high:.0%}", f"{covered} of {len(known)}"]
        print(f"| {way} | {name} | {len(found)} | {' | '.join(cells)} |")


def share(verdicts, wanted):
    return rate(verdicts.count(wanted), len(verdicts))


def rate(hits, trials):
    low, high = clopper_pearson(hits, trials)
    return f"{hits} ({low:.1%} to {high:.1%})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redraws", type=int, default=60)
    parser.add_argument("--lists", type=int, default=20)
    parser.add_argument("--exact", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    since, texts = time.monotonic(), comments()
    public, pool = texts[:3000], texts[3000:]
    vocabulary = WordVocabulary.build(Corpus.from_texts(public), size=2000)
    torch.manual_seed(0)
    base = fit(CausalTransformer(vocabulary, SHAPE), public, seed=0, epochs=3, rate=2e-3)
    print(f"base: {time.monotonic() - since:.0f} s", flush=True)
    rows = defaultdict(list)
    for seed in range(options.exact or options.redraws):
        if time.monotonic() - since > 60 * options.minutes:
            break
        for key, row in (exact if options.exact else redraw)(base, pool, seed):
            rows[key].append(row)
        if seed % 2 == 0 and not options.exact:
            for key, row in never_seen(base, pool, seed, options.lists):
                rows[key].append(row)
        print(f"{seed + 1} redraws, {time.monotonic() - since:.0f} s", flush=True)
        if seed % (20 if options.exact else 3) == 2:
            table(rows)
    table(rows)


if __name__ == "__main__":
    main()
