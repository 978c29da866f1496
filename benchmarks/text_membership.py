"""Scores of texts compared: AUC, and TPR at 1 % and 0.1 % FPR, on fine-tunes of known texts.

The models are those of `text_claims.py`: a GPT-2 of 0.7 M parameters on Reddit, continued
on 300 others. Each fine-tune is the target in turn, over its 300 comments and 600 that no model
read; the others are its shadows, on comments that are not among these.

    VESTIGE_DATA=data python benchmarks/text_membership.py --work DIR [--models 6] [--epochs 2]

DIR keeps models and token statistics: another run goes on there.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from text_claims import READ, TUNED, base_model, comments

import vestige
from vestige.attacks.texts.learnt_log_odds import LearntLogOdds, Shadow
from vestige.attacks.texts.other_texts import lower_case, zlib_score
from vestige.attacks.texts.scores import SCORES
from vestige.attacks.texts.shown_tokens import shown_only
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.data.corpus import Corpus
from vestige.monitor import SILENT
from vestige.workflows.inputs import open_model
from vestige.workflows.kept_statistics import KeptStatistics
from vestige.workflows.training_settings import TrainingSettings

NEVER, SHOWN, LONGEST = 600, 20, 250


def fine_tune(seed, rest, base, given):
    """Places of the comments that a fine-tune read, and its folder."""
    tuned = np.random.default_rng([7, seed]).permutation(rest.size)[:TUNED]
    out = given.work / f"tuned-{given.epochs}-{seed}"
    if not (out / "model").exists():
        how = TrainingSettings(epochs=given.epochs, learning_rate=1e-3, **READ)
        corpus = Corpus.from_texts(rest[tuned])
        vestige.train(corpus, out=out, start=base, training=how, hold_out=0, seed=seed)
    return tuned, out / "model"


def asked(folder, texts, kept):
    """Statistics of texts, in their order."""
    model = open_model(str(folder), device="cpu").eval()
    ids = [row[:LONGEST] for row in model.vocabulary.encode_batch(list(texts))]
    name = {"model": folder.parent.name, "longest": LONGEST}
    return KeptStatistics.beside(kept, name, monitor=SILENT).of(model, ids, task=str(folder))


def naive_floor(target):
    """The tokens shown, the others as likely as the least of them."""
    shown = target.ranks < SHOWN
    floor = target.likeliest_log_probs[:, SHOWN - 1]
    return replace(target, log_probs=np.where(shown, target.log_probs, floor))


def figures(scores, seen):
    """AUC, TPR at 1 % FPR, TPR at 0.1 % FPR."""
    own, other = scores[seen], np.sort(scores[~seen])
    below = np.searchsorted(other, own, "left") + np.searchsorted(other, own, "right")
    rates = [(own > other[-1 - int(rate * other.size)]).mean() for rate in (0.01, 0.001)]
    return below.mean() / (2 * other.size), *rates


def show(table):
    print("| score | AUC | TPR at 1 % | at 0.1 % | TPR at 1 %, by fine-tune |")
    print("| --- | --- | --- | --- | --- |")
    for name, rows in table.items():
        mean = np.mean(rows, axis=0)
        each = " ".join(f"{row[1]:.2f}" for row in rows)
        print(
            f"| {name} | " + " | ".join(f"{one:.3f}" for one in mean) + f" | {each} |", flush=True
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kept", type=Path, help="Where statistics are kept. Default: in DIR.")
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=2)
    given = parser.parse_args()
    kept = given.kept or given.work / "text-membership"
    texts = comments()
    chosen = np.random.default_rng(0).permutation(texts.size)
    base = base_model(texts[chosen[:6000]], given.work)
    rest = texts[np.sort(chosen[6000:])]
    tunes = [fine_tune(seed, rest, base, given) for seed in range(given.models)]
    read = np.unique(np.concatenate([places for places, _ in tunes]))
    unread = np.setdiff1d(np.arange(rest.size), read)
    never = np.random.default_rng(11).permutation(unread)[: 2 * NEVER]
    pool = np.concatenate([read, never])
    started = time.perf_counter()
    of_base = asked(base, rest[pool], kept)
    lower = [text.lower() for text in rest[pool]]
    of = [asked(folder, rest[pool], kept) for _, folder in tunes]
    print(f"{len(pool)} texts, {of_base.offsets[-1]} tokens, {time.perf_counter() - started:.0f} s")
    table = {}
    for turn, (places, folder) in enumerate(tunes):
        audited = np.isin(pool, places) | np.isin(pool, never[:NEVER])
        own = np.flatnonzero(audited)
        seen = np.isin(pool[own], places)
        left = np.flatnonzero(~audited)
        shadows, censored = [], []
        for other, (told, _) in enumerate(tunes):
            if other == turn:
                continue
            some = np.flatnonzero(np.isin(pool[left], told) | np.isin(pool[left], never[NEVER:]))
            target, below = first_tokens(of[other], left[some]), first_tokens(of_base, left[some])
            known = np.isin(pool[left[some]], told)
            shadows.append(Shadow(target, below, known))
            censored.append(Shadow(shown_only(target, below, likeliest=SHOWN), below, known))
        target, below = first_tokens(of[turn], own), first_tokens(of_base, own)
        part = shown_only(target, below, likeliest=SHOWN)
        named = {name: SCORES[name](target=target, base=below) for name in SCORES.names()}
        named["zlib"] = zlib_score(target, list(rest[pool[own]]))
        named["lower-case"] = lower_case(
            target, asked(folder, [lower[place] for place in own], kept)
        )
        named["ours"] = LearntLogOdds.fit(shadows, seed=0).scores(target, below)
        for name in ("log-ratio", "error-zone"):
            named[f"{name}, {SHOWN} shown, floor"] = SCORES[name](naive_floor(target), below)
            named[f"{name}, {SHOWN} shown, expected"] = SCORES[name](part, below)
        named[f"ours, {SHOWN} shown"] = LearntLogOdds.fit(censored, seed=0).scores(part, below)
        for name, scores in named.items():
            table.setdefault(name, []).append(figures(scores, seen))
        print(f"{turn + 1} of {len(tunes)}")
        show(table)


if __name__ == "__main__":
    main()
