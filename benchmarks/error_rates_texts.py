"""How often claims about lists of texts err, in simulations: no model is trained.

Every draw is a complete audit of sampled scores; the texts are strings, so that the verbs' own code
detects copies, authors and words. `false` is a wrong verdict.

- `deletion`: AFTER read none of the deleted texts, which have copies, near-copies of one author,
  texts of one author, or shorter texts; or AFTER knows half of what BEFORE knew ("no leak shown" is
  false). `words differ` has a retrained model; it knows the topics differently than AFTER.
- `passages`: a model samples common phrases as often from texts as from the reference.
- `membership`: lists with copies, or mostly of one author, of which nothing was used; and upper
  bounds from used texts of two authors. "each text" is the audit with every text as a unit.
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
    """Checks that a simulation supposes to pass, which can only add verdicts."""
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
    for name, verdict_of in cases.items():
        draws = run.draw(
            f"deletion, {name}", lambda seed, f=verdict_of: {"verdict": f(seed)}, times
        )
        false = NO_LEAK if name == "half is left" else LEAK
        hits = sum(row["verdict"] == false for row in draws)
        rows.append({"deleted": name, "verdict": false, "false": rate(hits, times)})
    return rows


def deletion_verdict(kind: str, seed: int) -> str:
    """The verdict on sampled log-probabilities of 30 deleted and 60 reference texts."""
    rng = np.random.default_rng([1, KINDS.index(kind), seed])
    texts, levels, authors = deleted_texts(kind, rng)
    short = kind == "shorter deleted texts"
    lengths = np.concatenate([
        rng.integers(10, 26 if short else 31, DELETED), rng.integers(10, 31, NEVER),
    ])  # fmt: skip
    deleted, trend = np.arange(len(texts)) < DELETED, 0.05 if short else 0.0
    models = []
    for gain in (1.0, 0.5 if kind == "half is left" else 0.0):
        rows = [
            -5 + level + gain * known + trend * np.arange(n) + rng.normal(0, 1, n)
            for level, known, n in zip(levels, deleted, lengths, strict=True)
        ]
        models.append((statistics(rows[:DELETED]), statistics(rows[DELETED:])))
    deleted_authors, reference_authors = authors or (None, None)
    lists = {
        "deleted": Corpus.from_texts(texts[:DELETED], users=deleted_authors),
        "reference": Corpus.from_texts(texts[DELETED:], users=reference_authors),
    }
    listed = listed_texts(lists, author=None)
    units = listed.units["deleted"], listed.units["reference"]
    checks = (*passed(*(name for name in SUPPOSED if name != "independent")), listed.check)
    before, after = (Knowledge.of(*lists_of_model, units) for lists_of_model in models)
    return verify(before, after, checks=checks, seed=seed).verdict


def deleted_texts(kind: str, rng: np.random.Generator) -> tuple[list[str], Any, Any]:
    """(texts of both lists, mean log-probability of each, authors of both lists or None)."""
    if kind in ("near-copies of one author", "one author"):
        return _texts_of_one_origin(rng, by_author=kind == "one author")
    times, texts, levels = COPIES.get(kind, 1), [], []
    for count in (DELETED, NEVER):
        for _ in range(count // times):
            original, level = _random_text(rng), rng.normal(0, 0.5)
            texts += [_near_copy(rng, original) if copy else original for copy in range(times)]
            levels += [level + 0.05 * rng.normal() for _ in range(times)]
        while len(texts) % (DELETED + NEVER) not in (0, DELETED):
            texts.append(_random_text(rng))
            levels.append(rng.normal(0, 0.5))
    return texts, levels, None


def _texts_of_one_origin(
    rng: np.random.Generator, *, by_author: bool
) -> tuple[list[str], np.ndarray, Any]:
    """Half of the deleted texts have one level: of one author, or near-copies of one text."""
    original, level, half = _random_text(rng), rng.normal(0, 0.5), DELETED // 2
    others = DELETED + NEVER - half
    texts = [_random_text(rng) if by_author else _near_copy(rng, original) for _ in range(half)]
    texts += [_random_text(rng) for _ in range(others)]
    alike = level + 0.05 * rng.normal(size=half)
    levels = np.concatenate([alike, rng.normal(0, 0.5, others)])
    authors = [*["one"] * half, *map(str, range(others))]
    return texts, levels, (authors[:DELETED], authors[DELETED:]) if by_author else None


def _random_text(rng: np.random.Generator, words: Sequence[str] = WORDS, length: int = 20) -> str:
    return " ".join(rng.choice(words, length))


def _near_copy(rng: np.random.Generator, text: str) -> str:
    words = text.split()
    words[rng.integers(len(words))] = str(rng.choice(WORDS))
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
    """The verdict where lists differ in topics, and models in their knowledge of topics."""
    rng = np.random.default_rng([2, round(100 * share), seed])
    vocabularies, texts, topics = [WORDS[:250], WORDS[150:]], [], []
    for count, first in ((DELETED, share), (NEVER, 1 - share)):
        for _ in range(count):
            topics.append(int(rng.random() > first))
            texts.append(_random_text(rng, vocabularies[topics[-1]], 30))
    gains = rng.normal(0, 0.1, 2)[topics] + rng.normal(0, 0.2, len(texts))
    gains_before = gains + (np.arange(len(texts)) < DELETED)
    before, after = (
        Knowledge(deleted=side[:DELETED], reference=side[DELETED:])
        for side in (gains_before, gains)
    )
    units = np.arange(DELETED), np.arange(NEVER)
    check = comparable_texts(texts[:DELETED], texts[DELETED:], units=units, seed=seed)
    checks = (*passed(*(name for name in SUPPOSED if name != "comparable")), check)
    return verify(before, after, checks=checks, seed=seed).verdict


def passages(run: Run) -> list[Row]:
    """False leaks of `extract` by the number of copies of each text."""
    rows, times = [], run.times(1000, 2)
    for copies in (1, 4):
        draws = run.draw(f"passages, {copies} copies", partial(passage_verdict, copies), times)
        rows.append({"copies": copies, **rates(draws, "false")})
    return rows


def passage_verdict(times: int, seed: int) -> Row:
    """40 texts against 160; each phrase is sampled at its own rate, in all of its copies."""
    rng, sides = np.random.default_rng([3, times, seed]), []
    for count in (40, 160):
        phrase_rates = rng.beta(0.3, 1.2, count // times)
        hits = np.concatenate([np.tile(rng.random(4) < p, (times, 1)) for p in phrase_rates])
        units = np.repeat(np.arange(count // times), times) + (1000 if count == 160 else 0)
        unread = {"log_prob": np.nan, "tries": np.nan, "strength": 0.0, "exact": 0.0}
        frame = {
            "unit": units, "length": 36, "passages": 4, "greedy": hits.sum(1),
            "sampled": hits.sum(1), "longest": 4, "hits": list(hits),
        }  # fmt: skip
        sides.append(pandas.DataFrame(frame | unread))
    checks = passed(*(name for name in SUPPOSED if name != "different"))
    result = memorization_result(*sides, ExtractionCriterion(), seed=seed, checks=checks)
    return {"false": result.verdict == LEAK}


# Membership --------------------------------------------------------------------------------------

MEMBERSHIP = ("alive", "read", "comparable", "independent")


def membership(run: Run) -> list[Row]:
    """False verdicts and bounds of lists of texts."""
    texts = reddit_texts(run)
    few, many = run.times(160, 2), run.times(400, 2)
    cases: dict[str, tuple[int, Callable[[int], Row]]] = {
        f"copies in groups of {size}": (few, partial(copies_leak, texts, size))
        for size in (1, 4, 8)
    }
    cases |= {f"bound, {n} authors": (many, partial(bound_fails, n)) for n in (2, 40)}
    cases["an author who dominates"] = many, author_leaks
    return [
        {"lists": name, **rates(run.draw(f"membership, {name}", make, times), "each text", "units")}
        for name, (times, make) in cases.items()
    ]


def reddit_texts(run: Run) -> list[str]:
    """Every fifth comment, if it has ten words or more."""
    return [comment.text for comment in comments(run)[::5] if len(comment.text.split()) >= 10]


def copies_leak(texts: Sequence[str], size: int, seed: int) -> Row:
    """Whether a leak is claimed where both lists have `size` copies of each text."""
    rng = np.random.default_rng([5, size, seed])
    originals = _sample(texts, 480 // size, rng)
    lists, values = {}, {}
    split = 96 // size
    for name, distinct in (("texts", originals[:split]), ("reference", originals[split:])):
        lists[name] = [
            copy
            for text in distinct
            for copy in (text, *(_copy(text, rng) for _ in range(size - 1)))
        ]
        scores = np.repeat(rng.normal(0, 1, len(distinct)), size)
        values[name] = scores + rng.normal(0, 0.2, len(scores))
    corpora = {name: Corpus.from_texts(texts) for name, texts in lists.items()}
    chosen, check = independent_texts(corpora)
    units = {name: values[name][chosen[name]] for name in lists}
    return {
        "each text": _leak(_scored(values["texts"]), _scored(values["reference"]), seed),
        "units": _leak(_scored(units["texts"]), _scored(units["reference"]), seed, check),
    }


def author_leaks(seed: int) -> Row:
    """Whether a leak is claimed where one author wrote most of the audited texts."""
    rng = np.random.default_rng([6, seed])
    authors = ["t0"] * 40 + [f"t{n}" for n in range(1, 21)]
    reference_authors = [f"r{n}" for n in rng.integers(0, 80, 200)]
    values = []
    for names in (authors, reference_authors):
        effects = {name: rng.normal(0, 1) for name in dict.fromkeys(names)}
        values.append(np.array([effects[name] for name in names]) + rng.normal(0, 0.5, len(names)))
    audited, reference = values
    return {
        "each text": _leak(_scored(audited), _scored(reference), seed),
        "units": _leak(_scored(audited, authors), _scored(reference, reference_authors), seed),
    }


def bound_fails(authors: int, seed: int) -> Row:
    """Whether the upper bound is too low; all 40 texts were used, the known ones of `authors`."""
    rng = np.random.default_rng([7, authors, seed])
    names = [f"u{n % authors}" for n in range(40)]
    used = rng.normal(0, 1, authors)[np.arange(40) % authors] + rng.normal(1, 0.5, 40)
    audited, never = rng.normal(1, np.sqrt(1.25), 40), rng.normal(0, np.sqrt(1.25), 200)
    wrong = {}
    for unit, users in (("each text", None), ("units", names)):
        sides = _scored(audited), _scored(never), _scored(used, users)
        result = audit_scores(*sides, checks=passed(*MEMBERSHIP), seed=seed)
        wrong[unit] = result.summary["at_most"] < 40
    return wrong


def _scored(values: np.ndarray, authors: list[str] | None = None) -> ScoredTexts:
    return ScoredTexts(CutScores.whole(values), authors)


def _leak(
    audited: ScoredTexts, reference: ScoredTexts, seed: int, independent: Check | None = None
) -> bool:
    checks = (*passed(*MEMBERSHIP[:3]), independent or passed("independent")[0])
    return audit_scores(audited, reference, checks=checks, seed=seed).verdict == LEAK


def _sample(texts: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    return [texts[index] for index in rng.choice(len(texts), count, replace=False)]


def _copy(text: str, rng: np.random.Generator) -> str:
    """A copy with one word replaced, in upper case, or with one more space."""
    words, kind = text.split(), rng.integers(3)
    if kind == 0:
        words[rng.integers(len(words))] = str(rng.choice(["cat", "dog", "house", "river"]))
        return " ".join(words)
    return text.upper() if kind == 1 else f" {text}"


# Comparable lists --------------------------------------------------------------------------------


def comparable(run: Run) -> list[Row]:
    """Honest pairs of lists that are rejected, and shifted ones that are accepted."""
    sources = {name: newsgroup(run, name) for name in ("rec.sport.hockey", "talk.politics.mideast")}
    sources["reddit"] = reddit_texts(run)
    sizes, times, rows = run.size((80, 160), (20, 40)), run.times(80, 1), []
    for name, texts in sources.items():
        for change in ("none", "upper case", "shorter half"):
            make = partial(is_rejected, texts, change, sizes)
            draws = run.draw(f"comparable, {name}, {change}", make, times)
            rows.append({"source": name, "shift": change, **rates(draws, "rejected")})
    return rows


def is_rejected(texts: Sequence[str], change: str, sizes: tuple[int, int], seed: int) -> Row:
    """Whether the check rejects a list, shifted or not, against other texts of its source."""
    rng = np.random.default_rng([8, seed])
    listed, reference = sizes
    shuffled = _sample(texts, len(texts), rng)
    audited, more = shuffled[:listed], shuffled[listed : 2 * listed]
    rest, others = shuffled[2 * listed :][:reference], shuffled[2 * listed + reference :][:2000]
    if change == "upper case":
        audited = [text.upper() for text in audited]
    if change == "shorter half":
        audited = sorted([*audited, *more], key=lambda text: len(text.split()))[:listed]
    lists = {"texts": Corpus.from_texts(audited), "reference": Corpus.from_texts(rest)}
    chosen, _ = independent_texts(lists)
    audited, rest = (list(corpus.take(chosen[name])) for name, corpus in lists.items())
    counts = Counter(word for text in others for word in normalized(text))
    units = np.arange(len(audited)), np.arange(len(rest))
    base = tuple(_word_scores(side, counts) for side in (audited, rest))
    check = comparable_texts(audited, rest, units=units, base=base, seed=seed)
    return {"rejected": check.state == "failed"}


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
