"""How often `membership --unit user` is wrong, what it finds, and whether its p-values repeat.

Users of Reddit are drawn anew each time. A model of pairs of words is counted on 300 other users,
the base; the target has also counted every fourth comment of 10 members, and those of 150 others.
Audited with 4 to 24 comments each: 20 users of whom nobody is a member, beside 40 reference users
(false verdicts); and 10 members with 10 others, beside 100 (false discoveries, power). Then the
largest change of a p-value when log-probabilities are multiplied by 1 + 1e-7 z, beside the base and
with shadow models.

    VESTIGE_DATA=corpora python benchmarks/claims_of_users.py [--draws 200] [--trials 3]

With `--p-values MODEL BASE TEXTS REFERENCE` it prints the p-values of one audit, with the base and
with shadow models, to compare two machines or vector widths (ATEN_CPU_CAPABILITY). The last line
is JSON. Figures on one core take about two seconds a draw.
"""

import argparse
import gzip
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from vestige.audits.membership import ranked_users
from vestige.audits.membership.membership import ShadowOptions, membership
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import auc, clopper_pearson, columns, mean
from vestige.models import token_statistics as statistics_module
from vestige.models.table import TableModel

PUBLIC, MEMBERS, AUDITED, REFERENCE, MORE = 300, 10, 20, 40, 100
SIZE, CROWD, WEIGHT, PART, NOISE = 1500, 150, 0.1, 4, 1e-7
SHADOWS = {"shadows": 4, "epochs": 2, "hidden_size": 16, "batch_size": 20}


def comments():
    """Different comments of 8 to 45 words by user, of those who have 24 or more."""
    by_user = {}
    path = Path(os.environ["VESTIGE_DATA"]) / "reddit_college" / "comments.jsonl.gz"
    with gzip.open(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            text = " ".join(row["body"].lower().split())
            if 8 <= len(text.split()) <= 45:
                by_user.setdefault(row["author"], {})[text] = None
    return {user: list(texts) for user, texts in by_user.items() if len(texts) >= 24}


class World:
    """A draw of users, and models that counted some of them."""

    def __init__(self, texts, seed):
        self.chance = np.random.default_rng(seed)
        self.texts = texts
        self.users = self.chance.permutation(sorted(texts)).tolist()
        self.known = None
        self.vocabulary = WordVocabulary.build(self.corpus(PUBLIC), size=SIZE)
        self.known = {self.vocabulary.piece(word) for word in range(len(self.vocabulary))}
        self.users = self.chance.permutation(sorted(texts)).tolist()
        self.public, self.members = self.corpus(PUBLIC), self.corpus(MEMBERS)
        counts = np.full((len(self.vocabulary),) * 2, 0.02)
        self.base = self.model(counts + self.pairs(self.public))
        self.target = self.model(
            counts
            + self.pairs(self.public)
            + WEIGHT * self.pairs(self.members.take(range(0, len(self.members), PART)))
            + WEIGHT * self.pairs(self.corpus(CROWD))
        )

    def corpus(self, count):
        """Comments of the next users, without words that the models do not know."""
        chosen, self.users = self.users[:count], self.users[count:]
        rows = [
            (text, user)
            for user in chosen
            for text in self.chance.permutation(self.texts[user])[: self.chance.integers(4, 25)]
        ]
        read = [
            " ".join(w for w in t.split() if not self.known or w in self.known) for t, _ in rows
        ]
        return Corpus.from_texts(read, users=[user for _, user in rows])

    def pairs(self, corpus):
        counts = np.zeros((len(self.vocabulary),) * 2)
        for ids in self.vocabulary.encode_batch(list(corpus)):
            np.add.at(counts, (ids[:-1], ids[1:]), 1)
        return counts

    def model(self, counts):
        first = np.full(len(counts), 1 / len(counts))
        return TableModel(first, counts / counts.sum(1, keepdims=True), self.vocabulary)

    def audit(self, texts, count=REFERENCE, **given):
        reference = self.corpus(count)
        return of_users(self.target, texts, reference=reference, **given)


def of_users(model, texts, **given):
    return membership(model, texts=texts, unit="user", device="cpu", **given)


def audited(found):
    """The audited users by name, in the order of their names."""
    rows = [row for row in found.rows if row["kind"] == "audited"]
    return sorted(rows, key=lambda row: row["user"])


def p_values(found):
    return np.array([row["p_value"] for row in audited(found)])


def rates(texts, draws):
    verdicts, clean, failed, false, power, aucs = Counter(), Counter(), Counter(), [], [], []
    for draw in range(draws):
        world = World(texts, draw)
        found = world.audit(world.corpus(AUDITED), base=world.base)
        clean[str(found.verdict)] += 1
        failed.update({one.name for one in found.claim.checks if one.state != "passed"})
        found_test = found.claim.test
        clean["significant"] += found_test is not None and found_test.significant
        world = World(texts, 10_000 + draw)
        mixed = world.members + world.corpus(AUDITED - MEMBERS)
        found = world.audit(mixed, MORE, base=world.base)
        verdicts[str(found.verdict)] += 1
        rows = audited(found)
        inside = np.array([row["user"] in set(world.members.users) for row in rows])
        called = np.array([row["called"] for row in rows])
        scores = np.array([row["score"] for row in rows])
        known = [row["score"] for row in found.rows if row["kind"] == "known out"]
        false.append(float((called & ~inside).sum() / max(1, called.sum())))
        power.append(float((called & inside).sum() / MEMBERS))
        aucs.append(auc(scores[inside], known).value)
    ends = {name: clopper_pearson(count, draws) for name, count in clean.items()}
    return {
        "nobody is a member": {name: [count, draws, *ends[name]] for name, count in clean.items()},
        "checks that did not pass": dict(failed),
        "half are members": dict(verdicts),
        "false discoveries": list(columns("", mean(false)).values()),
        "members flagged": list(columns("", mean(power)).values()),
        "auc": list(columns("", mean(aucs)).values()),
    }


def disturbed(found, chance):
    if isinstance(found, tuple):
        ranks, log_probs = found
        factor = 1 + NOISE * chance.standard_normal(log_probs.shape)
        return ranks, (log_probs * factor).astype(log_probs.dtype)
    changed = {}
    for name in ("log_probs", "means", "deviations"):
        column = getattr(found, name, None)
        if column is not None:
            factor = 1 + NOISE * chance.standard_normal(column.shape)
            changed[name] = (column * factor).astype(column.dtype)
    return replace(found, **changed)


def moved(texts, trials):
    """Largest changes of a p-value by noise, beside the base and with shadow models."""
    answers = {"base": [], "shadows": []}
    asks = statistics_module.token_statistics, ranked_users.ranks_of
    for trial in range(trials):
        for name, values in answers.items():
            found = []
            for noisy in (False, True):
                world, chance = World(texts, 20_000 + trial), np.random.default_rng(trial)
                given = {"base": world.base}
                if name == "shadows":
                    given = {"shadows": ShadowOptions(**SHADOWS)}
                if noisy:
                    statistics_module.token_statistics, ranked_users.ranks_of = (
                        lambda *a, ask=ask, chance=chance, **k: disturbed(ask(*a, **k), chance)
                        for ask in asks
                    )
                mixed = world.members + world.corpus(AUDITED - MEMBERS)
                found.append(p_values(world.audit(mixed, **given)))
                statistics_module.token_statistics, ranked_users.ranks_of = asks
            values.append(float(np.abs(found[0] - found[1]).max()))
    return answers


def one_audit(model, base, texts, reference):
    given = {"reference": reference, "user": "author"}
    shadows = ShadowOptions(**SHADOWS, shadow_dir=Path(texts).with_suffix(".shadows"))
    audits = {"base": {"base": base}, "shadows": {"shadows": shadows}}
    return {
        name: p_values(of_users(model, texts, **given, **more)).tolist()
        for name, more in audits.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--p-values", nargs=4, metavar=("MODEL", "BASE", "TEXTS", "REFERENCE"))
    given = parser.parse_args()
    if given.p_values:
        print(json.dumps(one_audit(*given.p_values)))
        return
    texts = comments()
    told = {"users": len(texts)}
    if given.draws:
        told |= rates(texts, given.draws)
    for name, value in told.items():
        print(f"{name}: {value}", flush=True)
    told["largest change of a p-value"] = moved(texts, given.trials) if given.trials else {}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
