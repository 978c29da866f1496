"""How often `membership` errs on real comments, of models whose training text is known.

- `users`: `--unit user` with a base. Models count pairs of words of Reddit users, drawn anew each
  time. Nobody is a member (20 users beside 40); then half of 20 are (beside 100): the share of
  flagged users who are no members is the false discovery rate, that of members the power.
- `texts`: 40 comments beside 300, of a GPT-2 that learned 300 others in two epochs: none of them
  used, of a later time, of another length (the check must notice), and 10, 50 and 100 % used, with
  40 other used ones known.

    VESTIGE_DATA=corpora python benchmarks/error_rates_membership.py [users] [texts] [--work DIR]
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from corpora import comments
from harness import Row, Run, main, rate, rates, verdicts
from networks import gpt2

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
    """Users of each role."""

    public: int = 300
    members: int = 10
    crowd: int = 150
    audited: int = 20
    few: int = 40
    many: int = 100
    words: int = 1500


WEIGHT, PART = 0.1, 4
"""Weight of what the target counted beside the base's text; every so many comments it counted."""


def users(run: Run) -> list[Row]:
    """False verdicts, false discoveries and power."""
    by_user, sizes = texts_by_user(run), run.size(Sizes(), Sizes(20, 4, 20, 8, 20, 24, 60))
    times = run.times(200, 2)
    clean = run.draw(
        "users, nobody is a member", partial(clean_audit, by_user, sizes), range(times)
    )
    mixed = run.draw("users, half are members", partial(mixed_audit, by_user, sizes), range(times))
    figures: dict[str, Any] = {}
    for name in ("false discoveries", "power", "auc"):
        figures |= columns(name, mean([row[name] for row in mixed])) if times > 1 else {}
    return [
        {"members": "none", **verdicts(clean), **rates(clean, "significant")},
        {"members": "half", **verdicts(mixed), **figures},
    ]


def texts_by_user(run: Run) -> dict[str, list[str]]:
    """Different comments of 8 to 45 words, of users who have 24 or more."""
    found: dict[str, dict[str, None]] = {}
    for one in comments(run):
        text = " ".join(one.text.lower().split())
        if 8 <= len(text.split()) <= 45:
            found.setdefault(one.author, {})[text] = None
    least = run.size(24, 10)
    return {user: list(texts) for user, texts in found.items() if len(texts) >= least}


def clean_audit(by_user: dict[str, list[str]], sizes: Sizes, draw: int) -> Row:
    """Nobody is a member."""
    world = World(by_user, sizes, draw)
    found = world.audit(world.corpus(sizes.audited), sizes.few)
    test = found.claim.test
    return {"verdict": found.verdict, "significant": test is not None and test.significant}


def mixed_audit(by_user: dict[str, list[str]], sizes: Sizes, draw: int) -> Row:
    """Half of the audited users are members."""
    world = World(by_user, sizes, 10_000 + draw)
    others = world.corpus(sizes.audited - sizes.members)
    found = world.audit(world.members + others, sizes.many)
    rows = sorted(
        (row for row in found.rows if row["kind"] == "audited"), key=lambda row: row["user"]
    )
    inside = np.array([row["user"] in set(world.members.users) for row in rows])
    called = np.array([row["called"] for row in rows])
    scores = np.array([row["score"] for row in rows])
    known = [row["score"] for row in found.rows if row["kind"] == "known out"]
    return {
        "verdict": found.verdict,
        "false discoveries": float((called & ~inside).sum() / max(1, called.sum())),
        "power": float((called & inside).sum() / sizes.members),
        "auc": auc(scores[inside], known).value,
    }


class World:
    """A draw of users, and models that counted some of them."""

    def __init__(self, by_user: dict[str, list[str]], sizes: Sizes, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.by_user, self.known = by_user, frozenset[str]()
        self.users = self.chance.permutation(sorted(by_user)).tolist()
        self.vocabulary = WordVocabulary.build(self.corpus(sizes.public), size=sizes.words)
        self.known = frozenset(map(self.vocabulary.piece, range(len(self.vocabulary))))
        self.users = self.chance.permutation(sorted(by_user)).tolist()
        public, self.members = self.corpus(sizes.public), self.corpus(sizes.members)
        counts = 0.02 + self.pairs(public)
        self.base = self.model(counts)
        learned = self.members.take(range(0, len(self.members), PART))
        more = self.pairs(learned) + self.pairs(self.corpus(sizes.crowd))
        self.target = self.model(counts + WEIGHT * more)

    def corpus(self, count: int) -> Corpus:
        """Comments of the next users, without words that the models do not know."""
        chosen, self.users = self.users[:count], self.users[count:]
        rows = [
            (text, user)
            for user in chosen
            for text in self.chance.permutation(self.by_user[user])[: self.chance.integers(4, 25)]
        ]
        read = [
            " ".join(w for w in t.split() if not self.known or w in self.known) for t, _ in rows
        ]
        return Corpus.from_texts(read, users=[user for _, user in rows])

    def pairs(self, corpus: Corpus) -> np.ndarray:
        """Counts of pairs of words."""
        counts = np.zeros((len(self.vocabulary),) * 2)
        for ids in self.vocabulary.encode_batch(list(corpus)):
            np.add.at(counts, (ids[:-1], ids[1:]), 1)
        return counts

    def model(self, counts: np.ndarray) -> TableModel:
        """Of counts."""
        first = np.full(len(counts), 1 / len(counts))
        return TableModel(first, counts / counts.sum(1, keepdims=True), self.vocabulary)

    def audit(self, texts: Corpus, reference: int) -> Any:
        """The verb, beside so many users who are not members."""
        return vestige.membership(
            self.target, texts=texts, reference=self.corpus(reference), unit="user",
            base=self.base, device="cpu",
        )  # fmt: skip


# Texts -------------------------------------------------------------------------------------------

TUNED, LISTED, REFERENCE, KNOWN, BASE = 300, 40, 300, 40, 6000
WORDS = (15, 200)
READ = {"batch_size": 16, "batching": "documents", "sequence_length": 256}
SCORES = {"error-zone": True, "log-ratio": True, "loss": False}
"""Scores, and whether they have a base."""


def texts(run: Run) -> list[Row]:
    """What the verb claims of lists whose truth is known."""
    corpus = ordered_comments(run)
    chosen = np.random.default_rng(0).permutation(corpus.size)
    read = run.size(BASE, 300)
    base = base_model(run, corpus[chosen[:read]])
    rest = corpus[np.sort(chosen[read:])]
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in run.draw(
        "texts", lambda seed: {"audits": list(audits(run, seed, rest, base))}, range(run.times(15))
    ):
        for audit in row["audits"]:
            grouped[audit["case"], audit["score"]].append(audit)
    return [summary(*key, rows) for key, rows in grouped.items()]


def ordered_comments(run: Run) -> np.ndarray:
    """Different comments in the order of their time."""
    rows = sorted(comments(run), key=lambda one: (one.created, one.name))
    texts = (" ".join(one.text.split()) for one in rows)
    kept = dict.fromkeys(text for text in texts if WORDS[0] <= len(text.split()) <= WORDS[1])
    return np.array(list(kept), dtype=object)


def base_model(run: Run, texts: Sequence[str]) -> Path:
    """A GPT-2 of 0.7 M parameters that has read some comments."""
    start, out = run.folder / "start", run.folder / "base"
    if not out.exists():
        corpus = Corpus.from_texts(texts)
        vocabulary = SubwordVocabulary.train_bpe(corpus, size=run.size(2048, 400))
        width = run.size(96, 16)
        model = gpt2(vocabulary, width=width, layers=4, heads=4, positions=257)
        model.network.save_pretrained(start)
        vocabulary.save(start)
        how = TrainingOptions(epochs=run.size(4, 1), learning_rate=1.5e-3, **READ)
        vestige.train(corpus, out=out, from_=start, training=how)
    return out / "model"


def audits(run: Run, seed: int, pool: np.ndarray, base: Path) -> Iterator[Row]:
    """Of one fine-tune."""
    tuned, listed, reference, known = run.size((TUNED, LISTED, REFERENCE, KNOWN), (60, 20, 60, 20))
    chance = np.random.default_rng([7, seed])
    order = chance.permutation(pool.size)
    own, rest = pool[order[:tuned]], np.sort(order[tuned:])  # by time
    model = run.folder / f"tuned-{seed}"
    if not model.exists():
        how = TrainingOptions(epochs=2, learning_rate=1e-3, **READ)
        given = {"from_": base, "training": how, "hold_out": 0, "seed": seed}
        vestige.train(Corpus.from_texts(own), out=model, **given)
    lengths, fifth = np.array([len(text.split()) for text in pool[rest]]), rest.size // 5
    long, short = run.size((90, 60), (45, 30))
    pools = {
        "none used": (rest, rest),
        "of a later time": (rest[-fifth:], rest[:fifth]),
        "of another length": (rest[lengths > long], rest[lengths < short]),
    }
    for case, (some, against) in pools.items():
        mine = chance.permutation(some)[:listed]
        other = np.setdiff1d(chance.permutation(against)[: reference + listed], mine)
        lists = {"texts": pool[mine], "reference": pool[chance.permutation(other)[:reference]]}
        yield from told(run, model, base, seed, case, 0, lists)
    for share in (0.1, 0.5, 1.0):
        used = round(share * listed)
        never = chance.permutation(rest)[: listed + reference]
        lists = {
            "texts": [*own[:used], *pool[never[: listed - used]]],
            "reference": pool[never[listed:]],
            "used": own[listed : listed + known],
        }
        yield from told(run, model, base, seed, f"{share:.0%} used", used, lists)


def told(
    run: Run, model: Path, base: Path, seed: int, case: str, used: int, lists: dict[str, Any]
) -> Iterator[Row]:
    """A row a score."""
    corpora = {name: Corpus.from_texts(list(texts)) for name, texts in lists.items()}
    for score, has_base in SCORES.items():
        found = vestige.membership(
            model / "model", base=base if has_base else None, score=score, seed=seed, device="cpu",
            statistics=run.folder / "statistics", **corpora,
        )  # fmt: skip
        never = [row for row in found.rows if row["kind"] == "audited"][used:]
        [check] = [one for one in found.claim.checks if one.name == "comparable"]
        at_most = found.summary["at_most"]
        yield {
            "case": case, "score": score, "verdict": found.verdict,
            "low": sum(row["p_value"] <= 0.05 for row in never), "never": len(never),
            "list test": found.summary["list_p_value"] <= 0.05,
            "comparable": check.state == "passed",
            "flagged": sum(row["named"] for row in never),
            "lower holds": found.summary["at_least"] <= used,
            "upper holds": None if at_most is None else at_most >= used,
        }  # fmt: skip


def summary(case: str, score: str, rows: list[Row]) -> Row:
    """Of all fine-tunes."""
    low, never = (sum(row[name] for row in rows) for name in ("low", "never"))
    return {
        "list": case, "score": score, **({"p <= .05": rate(low, never)} if never else {}),
        **rates(rows, "list test", "comparable", "lower holds", "upper holds"),
        "wrongly flagged": sum(row["flagged"] for row in rows), **verdicts(rows),
    }  # fmt: skip


PARTS = {"users": users, "texts": texts}

if __name__ == "__main__":
    main("error_rates_membership", __doc__, PARTS)
