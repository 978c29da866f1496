"""How often `membership` errs on real comments, for models whose training text is known.

- `users`: `--unit user` with a base. Models count pairs of words of Reddit users, sampled anew each
  time. First there is no member (20 users against 40); then half of 20 are members (against 100):
  the share of non-members among flagged users is the false discovery rate, the share of flagged
  members the power.
- `texts`: 40 comments against 300, for a GPT-2 that learned 300 others in two epochs: none of them
  used, of a later time, of another length (the check must notice), and 10, 50 and 100 % used, with
  40 other used comments known.

    VESTIGE_DATA=corpora python benchmarks/error_rates_membership.py [users] [texts] [--work DIR]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from corpora import comments
from harness import Row, Run, grouped, main, rate, rates, verdicts
from networks import gpt2, save

import vestige
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import auc, columns, mean
from vestige.models.table import TableModel
from vestige.preparation.options import TrainingOptions

# Users -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Users of each role: the crowd are other members; `few` and `many` are reference users."""

    public: int = 300
    members: int = 10
    crowd: int = 150
    audited: int = 20
    few: int = 40
    many: int = 100
    words: int = 1500


WEIGHT, EVERY = 0.1, 4
"""The target counts one in four comments of each member, with a weight of 0.1."""


def users(run: Run) -> list[Row]:
    """False verdicts, false discoveries and power."""
    by_user, sizes = texts_by_user(run), run.size(Sizes(), Sizes(20, 4, 20, 8, 20, 24, 60))
    times = run.times(200, 2)
    clean = run.draw("users, nobody is a member", partial(clean_audit, by_user, sizes), times)
    mixed = run.draw("users, half are members", partial(mixed_audit, by_user, sizes), times)
    figures: dict[str, Any] = {}
    for name in ("false discoveries", "power", "auc"):
        figures |= columns(name, mean([row[name] for row in mixed])) if times > 1 else {}
    return [
        {"members": "none", **verdicts(clean), **rates(clean, "significant")},
        {"members": "half", **verdicts(mixed), **figures},
    ]


def texts_by_user(run: Run) -> dict[str, list[str]]:
    """Distinct comments of 8 to 45 words, of users who have 24 or more."""
    by_user: dict[str, dict[str, None]] = {}
    for comment in comments(run):
        text = " ".join(comment.text.lower().split())
        if 8 <= len(text.split()) <= 45:
            by_user.setdefault(comment.author, {})[text] = None
    least = run.size(24, 10)
    return {user: list(texts) for user, texts in by_user.items() if len(texts) >= least}


def clean_audit(by_user: dict[str, list[str]], sizes: Sizes, seed: int) -> Row:
    """An audit without members."""
    world = World(by_user, sizes, seed)
    result = world.audit(world.corpus(sizes.audited), sizes.few)
    test = result.claim.test
    return {"verdict": result.verdict, "significant": test is not None and test.significant}


def mixed_audit(by_user: dict[str, list[str]], sizes: Sizes, seed: int) -> Row:
    """An audit in which half of the users are members."""
    world = World(by_user, sizes, 10_000 + seed)
    others = world.corpus(sizes.audited - sizes.members)
    result = world.audit(world.members + others, sizes.many)
    audited = [row for row in result.rows if row["kind"] == "audited"]
    member = np.array([row["user"] in set(world.members.users) for row in audited])
    flagged = np.array([row["called"] for row in audited])
    scores = np.array([row["score"] for row in audited])
    non_members = [row["score"] for row in result.rows if row["kind"] == "known out"]
    return {
        "verdict": result.verdict,
        "false discoveries": float((flagged & ~member).sum() / max(1, flagged.sum())),
        "power": float((flagged & member).sum() / sizes.members),
        "auc": auc(scores[member], non_members).value,
    }


class World:
    """A sample of users, and models that counted the words of some of them."""

    def __init__(self, by_user: dict[str, list[str]], sizes: Sizes, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.by_user, self.words = by_user, frozenset[str]()
        self.users = self.rng.permutation(sorted(by_user)).tolist()
        self.vocabulary = WordVocabulary.build(self.corpus(sizes.public), size=sizes.words)
        self.words = frozenset(map(self.vocabulary.piece, range(len(self.vocabulary))))
        self.users = self.rng.permutation(sorted(by_user)).tolist()
        public, self.members = self.corpus(sizes.public), self.corpus(sizes.members)
        counts = 0.02 + self.pairs(public)
        self.base = self.model(counts)
        learned = self.members.take(range(0, len(self.members), EVERY))
        more = self.pairs(learned) + self.pairs(self.corpus(sizes.crowd))
        self.target = self.model(counts + WEIGHT * more)

    def corpus(self, count: int) -> Corpus:
        """Comments of the next users, without words outside of the vocabulary."""
        chosen, self.users = self.users[:count], self.users[count:]
        rows = [
            (text, user)
            for user in chosen
            for text in self.rng.permutation(self.by_user[user])[: self.rng.integers(4, 25)]
        ]
        texts = [
            " ".join(word for word in text.split() if not self.words or word in self.words)
            for text, _ in rows
        ]
        return Corpus.from_texts(texts, users=[user for _, user in rows])

    def pairs(self, corpus: Corpus) -> np.ndarray:
        """Counts of pairs of words."""
        counts = np.zeros((len(self.vocabulary),) * 2)
        for ids in self.vocabulary.encode_batch(list(corpus)):
            np.add.at(counts, (ids[:-1], ids[1:]), 1)
        return counts

    def model(self, counts: np.ndarray) -> TableModel:
        """The bigram model of counts."""
        first = np.full(len(counts), 1 / len(counts))
        return TableModel(first, counts / counts.sum(1, keepdims=True), self.vocabulary)

    def audit(self, texts: Corpus, reference: int) -> Any:
        """The audit against `reference` users who are not members."""
        return vestige.membership(
            self.target, texts=texts, reference=self.corpus(reference), unit="user",
            base=self.base, device="cpu",
        )  # fmt: skip


# Texts -------------------------------------------------------------------------------------------

TUNED, LISTED, REFERENCE, USED, BASE = 300, 40, 300, 40, 6000
WORDS = (15, 200)
READ = {"batch_size": 16, "batching": "documents", "sequence_length": 256}
SCORES = {"error-zone": True, "log-ratio": True, "loss": False}
"""Scores, and whether they have a base."""


def texts(run: Run) -> list[Row]:
    """The verdicts and bounds on lists whose truth is known."""
    corpus = ordered_comments(run)
    order = np.random.default_rng(0).permutation(corpus.size)
    read = run.size(BASE, 300)
    base = base_model(run, corpus[order[:read]])
    pool = corpus[np.sort(order[read:])]
    draws = run.draw(
        "texts", lambda seed: {"audits": list(audits(run, seed, pool, base))}, run.times(15)
    )
    groups = grouped((audit for draw in draws for audit in draw["audits"]), "case", "score")
    return [summary(*key, rows) for key, rows in groups.items()]


def ordered_comments(run: Run) -> np.ndarray:
    """Distinct comments in the order of time."""
    rows = sorted(comments(run), key=lambda comment: (comment.created, comment.name))
    texts = (" ".join(comment.text.split()) for comment in rows)
    distinct = dict.fromkeys(text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1])
    return np.array(list(distinct), dtype=object)


def base_model(run: Run, texts: Sequence[str]) -> Path:
    """A GPT-2 of 0.7 M parameters that has read some comments."""
    start, out = run.folder / "start", run.folder / "base"
    if not out.exists():
        corpus = Corpus.from_texts(texts)
        if not start.exists():
            vocabulary = SubwordVocabulary.train_bpe(corpus, size=run.size(2048, 400))
            model = gpt2(vocabulary, width=run.size(96, 16), layers=4, heads=4, positions=257)
            save(model.network, vocabulary, start)
        training = TrainingOptions(epochs=run.size(4, 1), learning_rate=1.5e-3, **READ)
        vestige.train(corpus, out=out, from_=start, training=training)
    return out / "model"


def audits(run: Run, seed: int, pool: np.ndarray, base: Path) -> Iterator[Row]:
    """All audits of one fine-tune."""
    tuned, listed, reference, known = run.size((TUNED, LISTED, REFERENCE, USED), (60, 20, 60, 20))
    rng = np.random.default_rng([7, seed])
    order = rng.permutation(pool.size)
    read, unread = pool[order[:tuned]], np.sort(order[tuned:])  # `unread` by time
    model = run.folder / f"tuned-{seed}"
    if not model.exists():
        training = TrainingOptions(epochs=2, learning_rate=1e-3, **READ)
        vestige.train(
            Corpus.from_texts(read), out=model, from_=base, training=training, hold_out=0, seed=seed
        )
    lengths, fifth = np.array([len(text.split()) for text in pool[unread]]), unread.size // 5
    long, short = run.size((90, 60), (45, 30))
    sources = {
        "none used": (unread, unread),
        "of a later time": (unread[-fifth:], unread[:fifth]),
        "of another length": (unread[lengths > long], unread[lengths < short]),
    }
    for case, (tested, others) in sources.items():
        chosen = rng.permutation(tested)[:listed]
        against = np.setdiff1d(rng.permutation(others)[: reference + listed], chosen)
        lists = {"texts": pool[chosen], "reference": pool[rng.permutation(against)[:reference]]}
        yield from audit_rows(run, model, base, seed, case, 0, lists)
    for share in (0.1, 0.5, 1.0):
        used = round(share * listed)
        never = rng.permutation(unread)[: listed + reference]
        lists = {
            "texts": [*read[:used], *pool[never[: listed - used]]],
            "reference": pool[never[listed:]],
            "used": read[listed : listed + known],
        }
        yield from audit_rows(run, model, base, seed, f"{share:.0%} used", used, lists)


def audit_rows(
    run: Run, model: Path, base: Path, seed: int, case: str, used: int, lists: dict[str, Any]
) -> Iterator[Row]:
    """The audit of a list by each score."""
    corpora = {name: Corpus.from_texts(list(texts)) for name, texts in lists.items()}
    for score, has_base in SCORES.items():
        result = vestige.membership(
            model / "model", base=base if has_base else None, score=score, seed=seed, device="cpu",
            statistics=run.folder / "statistics", **corpora,
        )  # fmt: skip
        never = [row for row in result.rows if row["kind"] == "audited"][used:]
        [comparable] = [check for check in result.claim.checks if check.name == "comparable"]
        at_most = result.summary["at_most"]
        yield {
            "case": case, "score": score, "verdict": result.verdict,
            "low": sum(row["p_value"] <= 0.05 for row in never), "never": len(never),
            "list test": result.summary["list_p_value"] <= 0.05,
            "comparable": comparable.state == "passed",
            "flagged": sum(row["named"] for row in never),
            "lower holds": result.summary["at_least"] <= used,
            "upper holds": None if at_most is None else at_most >= used,
        }  # fmt: skip


def summary(case: str, score: str, rows: list[Row]) -> Row:
    """Rates over all fine-tunes."""
    low, never = (sum(row[name] for row in rows) for name in ("low", "never"))
    return {
        "list": case, "score": score, **({"p <= .05": rate(low, never)} if never else {}),
        **rates(rows, "list test", "comparable", "lower holds", "upper holds"),
        "wrongly flagged": sum(row["flagged"] for row in rows), **verdicts(rows),
    }  # fmt: skip


PARTS = {"users": users, "texts": texts}

if __name__ == "__main__":
    main("error_rates_membership", __doc__, PARTS)
