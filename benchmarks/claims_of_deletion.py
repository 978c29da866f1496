"""False verdicts of `unlearning` and `extract` (texts) where the truth is known, redrawn.

No model is trained. Log-probabilities of tokens, or which passages are sampled, are drawn; texts
are strings, so that near-duplicates, authors and words are found as the verbs find them. In every
row but the last of each verb, AFTER (or the model) read none of the texts, so "leak" is false. The
other checks count as passed, which can only add verdicts, except where the row says otherwise.

once, twice, four times     30 deleted texts and 60 of the reference in all, so many copies of each
near-copies of one author   half of the deleted texts are near-copies of one text
one author                  half of the deleted texts are of one author, of different words
shorter deleted texts       later tokens are easier, and deleted texts are shorter
words differ                with a retrained model; it and AFTER differ by topic, and so do the
                            lists; the word check is run
half is left                AFTER knows half of what BEFORE knew: "no leak shown" is false

Each row also says what the old rule, each text a unit and no word check, would have said.

    python benchmarks/claims_of_deletion.py [--redraws 1000] [--seed 0] [--rows "one author"]
"""

import argparse
import json

import numpy as np
import pandas

from vestige.audits.extraction.memorization import Extracted
from vestige.audits.extraction.memorized_texts import ALPHA, memorization_result
from vestige.audits.unlearning.knowledge import Knowledge, verify
from vestige.claims import LEAK, NO_LEAK, REQUIRED, Check
from vestige.claims.comparable import comparable_texts
from vestige.claims.text_lists import listed_texts
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import clopper_pearson, clustered_rate, difference_of
from vestige.models.token_statistics import TokenStatistics

WORDS = [f"w{number}" for number in range(400)]
PASSED = tuple(
    Check(name, "passed", "Supposed.") for name in REQUIRED["unlearning"] if name != "powerful"
)
DELETED, REFERENCE = 30, 60


def string(chance, words=WORDS, length=20):
    return " ".join(chance.choice(words, length))


def near(chance, text):
    words = text.split()
    words[chance.integers(len(words))] = str(chance.choice(WORDS))
    return " ".join(words)


def statistics(rows):
    """Token statistics with these log-probabilities."""
    flat = np.concatenate(rows).astype(np.float32)
    zeros = np.zeros(flat.size, np.int32)
    return TokenStatistics(
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]), tokens=zeros,
        log_probs=flat, ranks=zeros, means=flat, deviations=flat, likeliest=zeros[:, None],
        likeliest_log_probs=flat[:, None],
    )  # fmt: skip


def known(chance, hard, gain, lengths, *, trend=0.0):
    """What BEFORE and AFTER say: each text as hard as given, deleted ones known by so many nats."""
    said = []
    for own in gain:
        rows = [
            -5 + hardness + own * knows + trend * np.arange(n) + chance.normal(0, 1, n)
            for hardness, knows, n in zip(hard, *lengths, strict=True)
        ]
        said.append((statistics(rows[:DELETED]), statistics(rows[DELETED:])))
    return said


def copies(chance, times):
    """Texts of both lists with so many copies each, and how hard they are."""
    texts, hard = [], []
    for count in (DELETED, REFERENCE):
        for _ in range(count // times):
            own, hardness = string(chance), chance.normal(0, 0.5)
            texts += [near(chance, own) if copy else own for copy in range(times)]
            hard += [hardness + 0.05 * chance.normal() for _ in range(times)]
        while len(texts) % (DELETED + REFERENCE) not in (0, DELETED):
            texts.append(string(chance))
            hard.append(chance.normal(0, 0.5))
    return texts, hard, None


def one_of_many(chance, author):
    """Half of the deleted texts are of one origin, and alike hard."""
    own, hardness = string(chance), chance.normal(0, 0.5)
    half = DELETED // 2
    texts = [string(chance) if author else near(chance, own) for _ in range(half)]
    texts += [string(chance) for _ in range(DELETED + REFERENCE - half)]
    hard = np.concatenate([
        hardness + 0.05 * chance.normal(size=half),
        chance.normal(0, 0.5, DELETED + REFERENCE - half),
    ])  # fmt: skip
    names = [*["one"] * half, *map(str, range(DELETED + REFERENCE - half))]
    return texts, hard, (names[:DELETED], names[DELETED:]) if author else None


KINDS = {
    "once": lambda chance: copies(chance, 1),
    "twice": lambda chance: copies(chance, 2),
    "four times": lambda chance: copies(chance, 4),
    "near-copies of one author": lambda chance: one_of_many(chance, False),
    "one author": lambda chance: one_of_many(chance, True),
    "shorter deleted texts": lambda chance: copies(chance, 1),
    "half is left": lambda chance: copies(chance, 1),
}


def deletion(kind, seed):
    """The verdict, and whether the old rule would have found a leak."""
    chance = np.random.default_rng([1, list(KINDS).index(kind), seed])
    texts, hard, authors = KINDS[kind](chance)
    short = kind == "shorter deleted texts"
    sizes = np.concatenate([
        chance.integers(10, 26 if short else 31, DELETED), chance.integers(10, 31, REFERENCE),
    ])  # fmt: skip
    knows = np.arange(len(texts)) < DELETED
    left = 0.5 if kind == "half is left" else 0.0
    before, after = known(chance, hard, (1.0, left), (knows, sizes), trend=0.05 if short else 0.0)
    own, rest = authors or (None, None)
    lists = {
        "deleted": Corpus.from_texts(texts[:DELETED], users=own),
        "reference": Corpus.from_texts(texts[DELETED:], users=rest),
    }
    listed = listed_texts(lists, author=None)
    owners = listed.units["deleted"], listed.units["reference"]
    found = verify(
        Knowledge.of(*before, owners), Knowledge.of(*after, owners),
        checks=(*(one for one in PASSED if one.name != "independent"), listed.check), seed=seed,
    )  # fmt: skip
    return found.verdict, old_rule(*after, seed)


def old_rule(deleted, reference, seed):
    """Each text a unit, over as many tokens at most as the median of all."""
    most = int(np.median(np.concatenate([np.diff(one.offsets) for one in (deleted, reference)])))
    sides = [
        np.array([
            one.log_probs[a : min(a + most, b)].mean()
            for a, b in zip(one.offsets[:-1], one.offsets[1:], strict=True)
        ])
        for one in (deleted, reference)
    ]  # fmt: skip
    alone = Knowledge(deleted=sides[0], reference=sides[1])
    return min(alone.p_value(seed=seed), alone.p_value(seed=seed, less=True)) <= 0.025


def words_differ(share, seed):
    """With a retrained model: topics differ between lists, and how well two models know topics."""
    chance = np.random.default_rng([2, round(100 * share), seed])
    topics = [WORDS[:250], WORDS[150:]]
    texts, of = [], []
    for count, first in ((DELETED, share), (REFERENCE, 1 - share)):
        for _ in range(count):
            of.append(int(chance.random() > first))
            texts.append(string(chance, topics[of[-1]], 30))
    apart = chance.normal(0, 0.1, 2)  # by topic, what AFTER learnt more than the retrained model
    own = apart[of] + chance.normal(0, 0.2, len(texts))
    gain = np.arange(len(texts)) < DELETED
    after = Knowledge(deleted=own[:DELETED], reference=own[DELETED:])
    full = own + gain
    before = Knowledge(deleted=full[:DELETED], reference=full[DELETED:])
    check = comparable_texts(
        texts[:DELETED], texts[DELETED:], units=(np.arange(DELETED), np.arange(REFERENCE)),
        seed=seed,
    )  # fmt: skip
    rest = tuple(one for one in PASSED if one.name != "comparable")
    found = verify(before, after, checks=(*rest, check), seed=seed)
    return found.verdict, min(found.summary["p_value"], found.summary["less_p_value"]) <= 0.025


def passages(times, seed):
    """`extract` of texts with so many copies each, whose passages are common phrases."""
    chance = np.random.default_rng([3, times, seed])
    sides = []
    for count in (40, 160):
        rates = chance.beta(0.3, 1.2, count // times)
        hits = [np.tile(chance.random(4) < rate, (times, 1)) for rate in rates]
        rows = np.concatenate(hits)
        units = np.repeat(np.arange(count // times), times) + (1000 if count == 160 else 0)
        sides.append(
            pandas.DataFrame({
                "unit": units, "length": 36, "passages": 4, "greedy": rows.sum(1),
                "sampled": rows.sum(1), "log_prob": np.nan, "tries": np.nan, "strength": np.nan,
                "exact": np.nan, "longest": 4, "edit": np.nan, "bleu": np.nan, "hits": list(rows),
            })
        )  # fmt: skip
    checks = tuple(one for one in PASSED if one.name != "different")
    found = memorization_result(*sides, Extracted(), seed=seed, checks=checks)
    shares = [clustered_rate(side["sampled"].tolist(), [4] * len(side)) for side in sides]
    assert ALPHA == 0.05
    return found.verdict, difference_of(*shares).interval.low > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--redraws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rows", nargs="*", default=[""], help="rows whose names hold one of these"
    )
    options = parser.parse_args()
    rows = {f"deletion, {kind}": lambda seed, kind=kind: deletion(kind, seed) for kind in KINDS}
    for share in (0.5, 0.65, 0.8):
        rows[f"deletion, words differ ({share:.0%} of a topic against {1 - share:.0%})"] = (
            lambda seed, share=share: words_differ(share, seed)
        )
    for times in (1, 4):
        rows[f"memorization, each text {times} times"] = lambda seed, times=times: passages(
            times, seed
        )
    results = {}
    for name, ask in rows.items():
        if not any(part in name for part in options.rows):
            continue
        count = options.redraws if "words" not in name else options.redraws // 2
        told = [ask(options.seed + number) for number in range(count)]
        false = NO_LEAK if name.endswith("half is left") else LEAK
        hits = sum(verdict == false for verdict, _ in told)
        results[name] = {
            "false verdict": false, "redraws": count, "rate": hits / count,
            "interval": [round(end, 4) for end in clopper_pearson(hits, count)],
            "old rule, leak": sum(bool(old) for _, old in told) / count,
        }  # fmt: skip
        print(name, results[name], flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
