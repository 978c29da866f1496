"""How often claims about lists of texts err, in simulations: no model is trained.

Every draw is a whole audit from drawn scores or samples; the texts are strings, so that copies,
authors and words are found as the verbs find them. `false` is a wrong verdict.

- `deletion`: AFTER read none of the deleted texts, which have copies, near-copies of one author,
  texts of one author, or shorter texts; or AFTER knows half of what BEFORE knew ("no leak shown" is
  false). `words differ` has a retrained model, and it and AFTER know topics differently.
- `passages`: a model samples common phrases as often from texts as from the reference.
- `membership`: lists with copies, or mostly of one author, of which nothing was used; and upper
  bounds from used texts of two authors. "each text" is what the audit would say if every text
  were a unit.
- `comparable`: honest pairs of lists that the check rejects, shifted pairs that it accepts.

    VESTIGE_DATA=corpora python benchmarks/error_rates_texts.py [PART ...] [--times N] [--rows FILE]
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas
from corpora import comments, newsgroup
from harness import Row, Run, main, rate, rates

from vestige.audits.extraction.memorization import ExtractionCriterion
from vestige.audits.extraction.passages_result import memorization_result
from vestige.audits.membership.text_audit import ScoredTexts, audit_scores
from vestige.audits.unlearning.knowledge import Knowledge, verify
from vestige.claims import LEAK, NO_LEAK, REQUIRED, Check
from vestige.claims.comparable import comparable_texts
from vestige.claims.text_lists import independent_texts, listed_texts, normalized
from vestige.data.corpus import Corpus
from vestige.metrics.listed import CutScores
from vestige.models.token_statistics import TokenStatistics


def passed(*names: str) -> tuple[Check, ...]:
    """Checks that a simulation takes for granted, which can only add verdicts."""
    return tuple(Check(name, "passed", "Supposed.") for name in names)


# Deletion ----------------------------------------------------------------------------------------

WORDS = [f"w{number}" for number in range(400)]
DELETED, NEVER = 30, 60
SUPPOSED = [name for name in REQUIRED["unlearning"] if name != "powerful"]
KINDS = (
    "once", "twice", "four times", "near-copies of one author", "one author",
    "shorter deleted texts", "half is left",
)  # fmt: skip
COPIES = {"twice": 2, "four times": 4}


def deletion(run: Run) -> list[Row]:
    """False verdicts of `unlearning`, by what the deleted texts are."""
    rows, times = [], run.times(1000, 2)
    cases = {kind: partial(deletion_verdict, kind) for kind in KINDS}
    cases |= {f"words differ ({s:.0%})": partial(topic_verdict, s) for s in (0.5, 0.65, 0.8)}
    for name, ask in cases.items():
        told = run.draw(f"deletion, {name}", lambda seed, ask=ask: {"verdict": ask(seed)},
                        range(times))  # fmt: skip
        false = NO_LEAK if name == "half is left" else LEAK
        hits = sum(row["verdict"] == false for row in told)
        rows.append({"deleted": name, "verdict": false, "false": rate(hits, times)})
    return rows


def deletion_verdict(kind: str, seed: int) -> str:
    """Of drawn log-probabilities of the tokens of 30 deleted texts and 60 of the reference."""
    chance = np.random.default_rng([1, KINDS.index(kind), seed])
    texts, hard, authors = deleted_texts(kind, chance)
    short = kind == "shorter deleted texts"
    sizes = np.concatenate([
        chance.integers(10, 26 if short else 31, DELETED), chance.integers(10, 31, NEVER),
    ])  # fmt: skip
    knows, trend = np.arange(len(texts)) < DELETED, 0.05 if short else 0.0
    sides = []
    for gain in (1.0, 0.5 if kind == "half is left" else 0.0):
        rows = [
            -5 + own + gain * known + trend * np.arange(n) + chance.normal(0, 1, n)
            for own, known, n in zip(hard, knows, sizes, strict=True)
        ]
        sides.append((statistics(rows[:DELETED]), statistics(rows[DELETED:])))
    own, rest = authors or (None, None)
    lists = {
        "deleted": Corpus.from_texts(texts[:DELETED], users=own),
        "reference": Corpus.from_texts(texts[DELETED:], users=rest),
    }
    listed = listed_texts(lists, author=None)
    owners = listed.units["deleted"], listed.units["reference"]
    checks = (*passed(*(one for one in SUPPOSED if one != "independent")), listed.check)
    before, after = (Knowledge.of(*side, owners) for side in sides)
    return verify(before, after, checks=checks, seed=seed).verdict


def deleted_texts(kind: str, chance: np.random.Generator) -> tuple[list[str], Any, Any]:
    """(texts of both lists, how hard each is, authors of both lists or None)."""
    if kind in ("near-copies of one author", "one author"):
        return _of_one_origin(chance, by_author=kind == "one author")
    times, texts, hard = COPIES.get(kind, 1), [], []
    for count in (DELETED, NEVER):
        for _ in range(count // times):
            own, hardness = _string(chance), chance.normal(0, 0.5)
            texts += [_near(chance, own) if copy else own for copy in range(times)]
            hard += [hardness + 0.05 * chance.normal() for _ in range(times)]
        while len(texts) % (DELETED + NEVER) not in (0, DELETED):
            texts.append(_string(chance))
            hard.append(chance.normal(0, 0.5))
    return texts, hard, None


def _of_one_origin(
    chance: np.random.Generator, *, by_author: bool
) -> tuple[list[str], np.ndarray, Any]:
    """Half of the deleted texts are alike hard: of one author, or near-copies of one text."""
    own, hardness, half = _string(chance), chance.normal(0, 0.5), DELETED // 2
    others = DELETED + NEVER - half
    texts = [_string(chance) if by_author else _near(chance, own) for _ in range(half)]
    texts += [_string(chance) for _ in range(others)]
    alike = hardness + 0.05 * chance.normal(size=half)
    hard = np.concatenate([alike, chance.normal(0, 0.5, others)])
    names = [*["one"] * half, *map(str, range(others))]
    return texts, hard, (names[:DELETED], names[DELETED:]) if by_author else None


def _string(chance: np.random.Generator, words: Sequence[str] = WORDS, length: int = 20) -> str:
    return " ".join(chance.choice(words, length))


def _near(chance: np.random.Generator, text: str) -> str:
    words = text.split()
    words[chance.integers(len(words))] = str(chance.choice(WORDS))
    return " ".join(words)


def statistics(rows: Sequence[np.ndarray]) -> TokenStatistics:
    """Token statistics with these log-probabilities."""
    flat = np.concatenate(rows).astype(np.float32)
    zeros = np.zeros(flat.size, np.int32)
    return TokenStatistics(
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]), tokens=zeros,
        log_probs=flat, ranks=zeros, means=flat, deviations=flat, likeliest=zeros[:, None],
        likeliest_log_probs=flat[:, None],
    )  # fmt: skip


def topic_verdict(share: float, seed: int) -> str:
    """Topics differ between the lists, and how well AFTER and a retrained model know topics."""
    chance = np.random.default_rng([2, round(100 * share), seed])
    topics, texts, of = [WORDS[:250], WORDS[150:]], [], []
    for count, first in ((DELETED, share), (NEVER, 1 - share)):
        for _ in range(count):
            of.append(int(chance.random() > first))
            texts.append(_string(chance, topics[of[-1]], 30))
    own = chance.normal(0, 0.1, 2)[of] + chance.normal(0, 0.2, len(texts))
    full = own + (np.arange(len(texts)) < DELETED)
    before, after = (
        Knowledge(deleted=known[:DELETED], reference=known[DELETED:]) for known in (full, own)
    )
    units = np.arange(DELETED), np.arange(NEVER)
    check = comparable_texts(texts[:DELETED], texts[DELETED:], units=units, seed=seed)
    checks = (*passed(*(one for one in SUPPOSED if one != "comparable")), check)
    return verify(before, after, checks=checks, seed=seed).verdict


def passages(run: Run) -> list[Row]:
    """False leaks of `extract` of texts that have so many copies each."""
    rows, times = [], run.times(1000, 2)
    for copies in (1, 4):
        told = run.draw(
            f"passages, {copies} copies", lambda seed, n=copies: passage_verdict(n, seed),
            range(times),
        )  # fmt: skip
        rows.append({"copies": copies, **rates(told, "false")})
    return rows


def passage_verdict(times: int, seed: int) -> Row:
    """40 texts beside 160; each phrase is sampled at its own rate, in all of its copies."""
    chance, sides = np.random.default_rng([3, times, seed]), []
    for count in (40, 160):
        rates_of = chance.beta(0.3, 1.2, count // times)
        hits = np.concatenate([np.tile(chance.random(4) < one, (times, 1)) for one in rates_of])
        units = np.repeat(np.arange(count // times), times) + (1000 if count == 160 else 0)
        unread = {"log_prob": np.nan, "tries": np.nan, "strength": 0.0, "exact": 0.0}
        frame = {
            "unit": units, "length": 36, "passages": 4, "greedy": hits.sum(1),
            "sampled": hits.sum(1), "longest": 4, "hits": list(hits),
        }  # fmt: skip
        sides.append(pandas.DataFrame(frame | unread))
    checks = passed(*(one for one in SUPPOSED if one != "different"))
    found = memorization_result(*sides, ExtractionCriterion(), seed=seed, checks=checks)
    return {"false": found.verdict == LEAK}


# Membership --------------------------------------------------------------------------------------


def membership(run: Run) -> list[Row]:
    """False verdicts and bounds of lists of texts."""
    texts = [one.text for one in comments(run)[::5] if len(one.text.split()) >= 10]
    few, many = run.times(160, 2), run.times(400, 2)
    cases: dict[str, tuple[int, Callable[[int], Row]]] = {
        f"copies in groups of {size}": (few, partial(of_copies, texts, size)) for size in (1, 4, 8)
    }
    cases |= {f"bound, {n} authors": (many, partial(of_used, n)) for n in (2, 40)}
    cases["an author who dominates"] = many, of_an_author
    return [
        {"lists": name, **rates(run.draw(f"membership, {name}", ask, range(times)),
                                "each text", "units")}
        for name, (times, ask) in cases.items()
    ]  # fmt: skip


def of_copies(texts: Sequence[str], size: int, seed: int) -> Row:
    """Whether a leak is claimed, where both lists have their texts in so many copies."""
    chance = np.random.default_rng([5, size, seed])
    originals = _some(texts, 480 // size, chance)
    own, rest = originals[: 96 // size], originals[96 // size :]
    lists, values = {}, {}
    for name, some in (("texts", own), ("reference", rest)):
        lists[name] = [
            one for text in some for one in (text, *(_copy(text, chance) for _ in range(size - 1)))
        ]
        scores = np.repeat(chance.normal(0, 1, len(some)), size)
        values[name] = scores + chance.normal(0, 0.2, len(scores))
    corpora = {name: Corpus.from_texts(some) for name, some in lists.items()}
    places, check = independent_texts(corpora)
    kept = {name: values[name][places[name]] for name in lists}
    return {
        "each text": _leak(_scored(values["texts"]), _scored(values["reference"]), seed),
        "units": _leak(_scored(kept["texts"]), _scored(kept["reference"]), seed, check),
    }


def of_an_author(seed: int) -> Row:
    """Whether a leak is claimed, where one author wrote most of the audited texts."""
    chance = np.random.default_rng([6, seed])
    owners = ["t0"] * 40 + [f"t{n}" for n in range(1, 21)]
    others = [f"r{n}" for n in chance.integers(0, 80, 200)]
    values = []
    for names in (owners, others):
        effect: dict[str, float] = {}
        for name in names:
            if name not in effect:
                effect[name] = chance.normal(0, 1)
        values.append(
            np.array([effect[name] for name in names]) + chance.normal(0, 0.5, len(names))
        )
    own, rest = values
    return {
        "each text": _leak(_scored(own), _scored(rest), seed),
        "units": _leak(_scored(own, owners), _scored(rest, others), seed),
    }


def of_used(authors: int, seed: int) -> Row:
    """Whether the upper bound is too low, where all 40 were used and so many authors are known."""
    chance = np.random.default_rng([7, authors, seed])
    owners = [f"u{n % authors}" for n in range(40)]
    known = chance.normal(0, 1, authors)[np.arange(40) % authors] + chance.normal(1, 0.5, 40)
    own, never = chance.normal(1, np.sqrt(1.25), 40), chance.normal(0, np.sqrt(1.25), 200)
    wrong = {}
    for how, names in (("each text", None), ("units", owners)):
        used = _scored(known, names)
        found = audit_scores(
            _scored(own), _scored(never), used, checks=passed(*MEMBERSHIP), seed=seed
        )
        wrong[how] = found.summary["at_most"] < 40
    return wrong


MEMBERSHIP = ("alive", "read", "comparable", "independent")


def _scored(values: np.ndarray, authors: list[str] | None = None) -> ScoredTexts:
    return ScoredTexts(CutScores.whole(values), authors)


def _leak(own: ScoredTexts, rest: ScoredTexts, seed: int, independent: Check | None = None) -> bool:
    checks = passed(*MEMBERSHIP[:3]), independent or passed("independent")[0]
    return audit_scores(own, rest, checks=(*checks[0], checks[1]), seed=seed).verdict == LEAK


def _some(texts: Sequence[str], count: int, chance: np.random.Generator) -> list[str]:
    return [texts[place] for place in chance.choice(len(texts), count, replace=False)]


def _copy(text: str, chance: np.random.Generator) -> str:
    """A copy with one word replaced, in another case, or with one more space."""
    words, kind = text.split(), chance.integers(3)
    if kind == 0:
        words[chance.integers(len(words))] = str(chance.choice(["cat", "dog", "house", "river"]))
        return " ".join(words)
    return text.upper() if kind == 1 else f" {text}"


# Comparable lists --------------------------------------------------------------------------------


def comparable(run: Run) -> list[Row]:
    """Honest pairs of lists that are rejected, and shifted ones that are accepted."""
    reddit = [one.text for one in comments(run)[::5] if len(one.text.split()) >= 10]
    sources = {name: newsgroup(run, name) for name in ("rec.sport.hockey", "talk.politics.mideast")}
    sources["reddit"] = reddit
    sizes, times, rows = run.size((80, 160), (20, 40)), run.times(80, 1), []
    for name, texts in sources.items():
        for change in ("none", "upper case", "shorter half"):
            told = run.draw(
                f"comparable, {name}, {change}",
                lambda seed, texts=texts, change=change: {
                    "rejected": is_rejected(texts, change, sizes, seed)
                },
                range(times),
            )
            rows.append({"source": name, "shift": change, **rates(told, "rejected")})
    return rows


def is_rejected(texts: Sequence[str], change: str, sizes: tuple[int, int], seed: int) -> bool:
    """Whether the check rejects a list of a source, shifted or not, beside others of the source."""
    chance = np.random.default_rng([8, seed])
    listed, reference = sizes
    every = _some(texts, len(texts), chance)
    own, more = every[:listed], every[listed : 2 * listed]
    rest, others = every[2 * listed :][:reference], every[2 * listed + reference :][:2000]
    if change == "upper case":
        own = [text.upper() for text in own]
    if change == "shorter half":
        own = sorted([*own, *more], key=lambda text: len(text.split()))[:listed]
    lists = {"texts": Corpus.from_texts(own), "reference": Corpus.from_texts(rest)}
    kept, _ = independent_texts(lists)
    own, rest = (list(corpus.take(kept[name])) for name, corpus in lists.items())
    counts = Counter(word for text in others for word in normalized(text))
    units = np.arange(len(own)), np.arange(len(rest))
    base = tuple(_word_scores(side, counts) for side in (own, rest))
    return comparable_texts(own, rest, units=units, base=base, seed=seed).state == "failed"


def _word_scores(texts: Sequence[str], counts: Counter[str]) -> np.ndarray:
    """The mean log-probability of a text's words, counted on other texts."""
    total = counts.total() + len(counts)
    return np.array(
        [
            np.mean([np.log((counts[word] + 1) / total) for word in normalized(text) or [""]])
            for text in texts
        ]
    )


PARTS = {
    "deletion": deletion,
    "passages": passages,
    "membership": membership,
    "comparable": comparable,
}

if __name__ == "__main__":
    main("error_rates_texts", __doc__, PARTS)
