"""How often the checks of listed texts err on real text, and how often membership errs by them.

- `comparable`: honest pairs (random parts of one source) that it rejects, and shifted pairs that it
  accepts. The base that saw neither is a unigram model of other texts of the source.
- `independent`: share of real lists that near-duplicates collapse, and the share of near-duplicate
  pairs, by comparing all pairs, that are found; then the same with planted copies.
- verdicts: lists of which nothing was used, with copies in groups on both lists, or with an author
  who wrote most of the audited texts; and upper bounds from texts of two authors. Scores are drawn:
  a text has a deviation of its own, an author one, a copy nearly that of its original. "all texts"
  is what the audit would say without collapsing, "units" what it says.

    python benchmarks/claims_of_texts.py [--draws 80] [--parts NAME ...] [--data DIR]

The last line is JSON.
"""

import argparse
import gzip
import json
import os
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from vestige.audits.membership.text_audit import Scored, audit_scores
from vestige.claims import LEAK, Check, near_duplicates
from vestige.claims.comparable import comparable_texts
from vestige.claims.text_lists import ALIKE, independent_texts, normalized, shingles
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import clopper_pearson
from vestige.metrics.listed import CutScores

LISTED, REFERENCE = 80, 160
OK = Check("independent", "passed", "It passed.")


def newsgroup(data, name):
    """Bodies of messages without quoted lines."""
    found = []
    for path in sorted((data / "newsgroups" / name).iterdir()):
        body = path.read_text(encoding="latin-1").partition("\n\n")[2]
        lines = [
            line for line in body.splitlines() if not line.lstrip().startswith((">", "|", ":"))
        ]
        found.append("\n".join(line for line in lines if "writes:" not in line).strip())
    return [text for text in found if len(text.split()) >= 10]


def comments(data):
    """Reddit comments of ten words or more: (text, author, subreddit)."""
    [path] = (data / "reddit_college").glob("*.gz")
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for number, line in enumerate(file) if number % 5 == 0]
    rows = [row for row in rows if len(row["body"].split()) >= 10]
    return [(row["body"], row["author"], row["subreddit"]) for row in rows]


def rate(hits, runs):
    """[rate, low, high, runs]."""
    return [hits / runs, *clopper_pearson(hits, runs), runs]


def unigrams(texts):
    """The mean log-probability of a text's words, counted on other texts."""
    counts = Counter(word for text in texts for word in normalized(text))
    total = sum(counts.values()) + len(counts)
    return lambda own: np.array(
        [
            np.mean([np.log((counts[word] + 1) / total) for word in normalized(text) or [""]])
            for text in own
        ]
    )


def rejected(own, rest, base, seed):
    lists = {"texts": Corpus.from_texts(own), "reference": Corpus.from_texts(rest)}
    kept, _ = independent_texts(lists)
    own, rest = (list(corpus.take(kept[name])) for name, corpus in lists.items())
    check = comparable_texts(
        own, rest, units=(np.arange(len(own)), np.arange(len(rest))),
        base=(base(own), base(rest)), seed=seed,
    )  # fmt: skip
    return check.state == "failed"


def drawn(texts, count, chance):
    return [texts[place] for place in chance.choice(len(texts), count, replace=False)]


def comparing(sources, written, draws):
    """Rejected honest pairs and accepted shifted ones."""
    found = {"honest rejected": {}, "shifted accepted": {}}
    for name, texts in sources.items():
        chance, hits = np.random.default_rng(1), 0
        for seed in range(draws):
            every = drawn(texts, len(texts), chance)
            base = unigrams(every[LISTED + REFERENCE :][:2000])
            own, rest = every[:LISTED], every[LISTED : LISTED + REFERENCE]
            hits += rejected(own, rest, base, seed)
        found["honest rejected"][name] = rate(hits, draws)
    shifts = {
        "upper case": lambda own, _: [text.upper() for text in own],
        "shorter half": lambda own, more: sorted([*own, *more], key=lambda t: len(t.split()))[
            :LISTED
        ],
    }
    few = max(20, draws // 4)
    for name, texts in sources.items():
        for shift, change in shifts.items():
            chance, passed = np.random.default_rng(2), 0
            for seed in range(few):
                every = drawn(texts, 2 * LISTED + REFERENCE, chance)
                own = change(every[:LISTED], every[LISTED : 2 * LISTED])
                rest = every[2 * LISTED :]
                passed += not rejected(own, rest, unigrams(drawn(texts, 500, chance)), seed)
            found["shifted accepted"][f"{name}, {shift}"] = rate(passed, few)
    hockey, mideast = sources["hockey"], sources["mideast"]
    chance, passed = np.random.default_rng(3), 0
    for seed in range(few):
        own, rest = drawn(hockey, LISTED, chance), drawn(mideast, REFERENCE, chance)
        passed += not rejected(own, rest, unigrams(drawn(mideast, 500, chance)), seed)
    found["shifted accepted"]["hockey against mideast"] = rate(passed, few)
    reddit, prolific = sources["reddit"], [own for own in written.values() if len(own) >= 40]
    passed = 0
    for seed, own in enumerate(prolific[: 3 * few]):
        rest = drawn([text for text in reddit if text not in set(own)], REFERENCE, chance)
        passed += not rejected(own[:LISTED], rest, unigrams(drawn(reddit, 500, chance)), seed)
    found["shifted accepted"]["reddit, a single author"] = rate(passed, min(len(prolific), 3 * few))
    return found


def alike_pairs(texts):
    """All pairs of near-duplicates, by comparing every pair."""
    sets = [shingles(text) for text in texts]
    return [
        (i, j)
        for i, own in enumerate(sets)
        for j, other in enumerate(sets[:i])
        if (both := len(own & other)) and both >= ALIKE * (len(own) + len(other) - both)
    ]


def copied(text, chance, words):
    """A copy with one word replaced, in another case, or with one more space."""
    own = text.split()
    kind = chance.integers(3)
    if kind == 0:
        own[chance.integers(len(own))] = str(chance.choice(words))
        return " ".join(own)
    return text.upper() if kind == 1 else f" {text}"


def collapsing(sources):
    """Collapsed shares and recall."""
    found = {}
    for name, texts in sources.items():
        chance = np.random.default_rng(4)
        some = drawn(texts, min(len(texts), 1000), chance)
        began = time.process_time()
        groups = near_duplicates(some)
        seconds = time.process_time() - began
        pairs = alike_pairs(some)
        singles = [some[place] for place in np.unique(groups)][:100]
        words = [word for text in singles for word in text.split()]
        copies = [[text, *(copied(text, chance, words) for _ in range(7))] for text in singles]
        planted = near_duplicates([text for own in copies for text in own]).reshape(-1, 8)
        found[name] = {
            "texts": len(some),
            "collapsed": 1 - len(np.unique(groups)) / len(some),
            "pairs": len(pairs),
            "recall": float(np.mean([groups[i] == groups[j] for i, j in pairs])) if pairs else None,
            "copies joined with their original": float((planted[:, 1:] == planted[:, :1]).mean()),
            "originals joined with others": 1 - len(np.unique(planted[:, 0])) / len(planted),
            "seconds": round(seconds, 3),
        }
    return found


def passed(independent):
    names = ("alive", "read", "comparable")
    return (*(Check(name, "passed", "It passed.") for name in names), independent)


def scored(values, authors=None):
    return Scored(CutScores.whole(values), authors)


def of_copies(texts, size, draws):
    """False "leak" verdicts with copies in groups of a size on both lists."""
    chance, words = np.random.default_rng([5, size]), ["cat", "dog", "house", "river", "blue"]
    hits = Counter()
    for seed in range(draws):
        lists, values = {}, {}
        originals = drawn(texts, (96 + 384) // size, chance)
        for name, own in (
            ("texts", originals[: 96 // size]),
            ("reference", originals[96 // size :]),
        ):
            lists[name] = [
                one
                for t in own
                for one in [t, *(copied(t, chance, words) for _ in range(size - 1))]
            ]
            values[name] = np.repeat(chance.normal(0, 1, len(own)), size) + chance.normal(
                0, 0.2, len(own) * size
            )
        places, check = independent_texts(
            {name: Corpus.from_texts(own) for name, own in lists.items()}
        )
        kept = {name: values[name][places[name]] for name in lists}
        for how, given in (("all texts", values), ("units", kept)):
            ok = check if how == "units" else Check("independent", "passed", "Ignored.")
            sides = scored(given["texts"]), scored(given["reference"])
            found = audit_scores(*sides, checks=passed(ok), seed=seed)
            hits[how] += found.verdict == LEAK
    return {how: rate(hits[how], draws) for how in ("all texts", "units")}


def of_authors(draws):
    """False "leak" verdicts where one author wrote most of the audited texts."""
    hits = Counter()
    for seed in range(draws):
        chance = np.random.default_rng([6, seed])
        names = {"texts": ["t0"] * 40 + [f"t{n}" for n in range(1, 21)]}
        names["reference"] = [f"r{n}" for n in chance.integers(0, 80, 200)]
        values = {}
        for side, own in names.items():
            effect = defaultdict(lambda chance=chance: chance.normal(0, 1))
            values[side] = np.array([effect[one] + chance.normal(0, 0.5) for one in own])
        for how in ("all texts", "units"):
            sides = [scored(values[s], names[s] if how == "units" else None) for s in names]
            found = audit_scores(*sides, checks=passed(OK), seed=seed)
            hits[how] += found.verdict == LEAK
    return {how: rate(hits[how], draws) for how in ("all texts", "units")}


def of_used(draws, authors):
    """Wrong upper bounds, all 40 audited texts used, from 40 texts of some authors."""
    hits = Counter()
    for seed in range(draws):
        chance = np.random.default_rng([7, authors, seed])
        owners = [f"u{n % authors}" for n in range(40)]
        known = chance.normal(0, 1, authors)[np.arange(40) % authors] + chance.normal(1, 0.5, 40)
        own = chance.normal(1, np.sqrt(1.25), 40)
        never = chance.normal(0, np.sqrt(1.25), 200)
        for how in ("all texts", "units"):
            used = scored(known, owners if how == "units" else None)
            found = audit_scores(scored(own), scored(never), used, checks=passed(OK), seed=seed)
            hits[how] += found.summary["at_most"] < 40
    return {how: rate(hits[how], draws) for how in ("all texts", "units")}


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--draws", type=int, default=80)
    asked.add_argument("--parts", nargs="+", help="some of the names that are printed")
    asked.add_argument("--data", type=Path, default=os.environ.get("VESTIGE_DATA"))
    given = asked.parse_args()
    rows = comments(given.data)
    written = defaultdict(list)
    for text, author, _ in rows:
        written[author].append(text)
    groups = Counter(group for *_, group in rows).most_common(2)
    sources = {
        "reddit": [text for text, *_ in rows],
        groups[0][0]: [text for text, _, group in rows if group == groups[0][0]],
        "hockey": newsgroup(given.data, "rec.sport.hockey"),
        "mideast": newsgroup(given.data, "talk.politics.mideast"),
    }
    few, many = 2 * given.draws, 5 * given.draws
    parts = {
        "independent": lambda: collapsing(sources),
        "comparable": lambda: comparing(sources, written, given.draws),
        "copies in groups of 4": lambda: of_copies(sources["reddit"], 4, few),
        "copies in groups of 8": lambda: of_copies(sources["reddit"], 8, few),
        "no copies": lambda: of_copies(sources["reddit"], 1, few),
        "upper bound, used by 2 authors": lambda: of_used(many, 2),
        "upper bound, used by 40 authors": lambda: of_used(many, 40),
        "an author who dominates": lambda: of_authors(many),
    }
    found = {}
    for name in given.parts or parts:
        found[name] = parts[name]()
        print(name, found[name], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
