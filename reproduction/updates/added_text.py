"""Tables of real text: phrases of a newsgroup that was added to Reddit, and their topic.

The topic is a mechanical, calibrated criterion. A word is over-represented in the added text if its
log-odds there exceed those in the original by more than a bound (0.5 added to each count, Haldane
1956). A phrase is on topic if at least half of its content words are over-represented; content
words are alphabetic and not among the commonest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.papers import Row, Rows, paper_numbers, table
from reproduction.stages import Call, Work
from reproduction.texts import random_parts, read_text
from reproduction.updates.exposures import gains
from reproduction.updates.searches import PAIRS_AND_OPENINGS, Beams, Finding, Search, findings
from reproduction.updates.snapshots import Setting, prepare
from vestige.audits.update.pair import Pair, Tokens
from vestige.audits.update.scores import TokenScore
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import Vocabulary
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel

LENGTH, GROUPS = 4, 5
"""Tokens of a phrase and groups of the beam searches."""
SEARCHES: dict[str, tuple[Search, str]] = {
    "group": (Beams(length=LENGTH, groups=GROUPS), "relative"),
    "vanilla": (Beams(length=LENGTH), "relative"),
    "group, smoothed": (Beams(length=LENGTH, groups=GROUPS), "smoothed"),
    "seed and extend": (PAIRS_AND_OPENINGS, "smoothed"),
}


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A text added to another.

    Attributes:
        setting: the text before and the model.
        added: names of the texts, each added in its own update.
        words: of each added text, sampled; None: all.
        shown: phrases listed of each search, equally many of each group.
    """

    setting: Setting
    added: tuple[str, ...]
    words: int | None = None
    shown: int = 20


def on_topic_counts(rows: Rows) -> str:
    """Per search: phrases on topic and verbatim, and those of the null pair and of the texts."""
    sentences = []
    for added, model in dict.fromkeys((row["added"], row["model"]) for row in rows):
        of_pair = [row for row in rows if (row["added"], row["model"]) == (added, model)]
        counts = []
        for search in dict.fromkeys(row["search"] for row in of_pair if row["source"] == "ours"):
            ours, null = (
                [r for r in of_pair if (r["search"], r["source"]) == (search, source)]
                for source in ("ours", "null")
            )
            verbatim = sum(row["in_added"] > 0 for row in ours)
            counts.append(
                f"{search} {_on_topic_count(ours)}, {verbatim} verbatim, "
                f"null {_on_topic_count(null)}"
            )
        share_added, share_original = (
            of_pair[0][f"topic_share_{text}"] for text in ("added", "original")
        )
        sentences.append(
            f"On topic, {added}, {model}: {'; '.join(counts)}. By the same measure "
            f"{share_added:.1%} of the added text's own windows are on topic, and "
            f"{share_original:.1%} of the original's."
        )
    return " ".join(sentences)


def _on_topic_count(rows: Rows) -> str:
    count = f"{sum(row['on_topic'] for row in rows)} of {len(rows)}"
    return f"{count} (highest score {max(row['score'] for row in rows):.3g})" if rows else count


@table("updates", "tables3-4", remark=on_topic_counts)
def tables34(work: Work, additions: tuple[Addition, ...]) -> Iterator[Row]:
    """Tables 3 and 4: a row for each of our phrases, and for each of the paper's.

    Both models are trained from fresh weights, with seeds 0 and 100. In a null pair the second
    model learns the original again, with seed 1. On-topic phrases of the null pair are chance: one
    vocabulary covers both texts.
    """
    paper = paper_numbers("updates", "tables34", key=4)
    for addition in additions:
        texts = {name: added_text(name, addition.words, work) for name in addition.added}
        material = prepare(addition.setting, work, vocabulary_texts=tuple(texts.values()))
        vocabulary = material.vocabulary
        calls = [material.snapshot(material.original, seed=seed) for seed in (0, 1)]
        for text in texts.values():
            both = Corpus.concatenate([material.original, text])
            calls.append(material.snapshot(both, seed=100))
        before, null, *updated = work.all(calls)
        original = encode(material.original, vocabulary)
        for (name, text), after in zip(texts.items(), updated, strict=True):
            added = encode(text, vocabulary)
            topic = topic_of(added, original, vocabulary)
            labels = {
                "added": name,
                **material.quality(before, after),
                "topic_share_added": topic.share(added, length=LENGTH),
                "topic_share_original": topic.share(original, length=LENGTH),
            }
            rows: list[Row] = []
            model = load_model(before.folder)
            for source, finished in (("ours", after), ("null", null)):
                found = phrase_rows(model, load_model(finished.folder), addition.shown)
                rows += [{"source": source, **row} for row in found]
            for (newsgroup, architecture, search, phrase), numbers in paper.items():
                if (newsgroup, architecture) == (name, addition.setting.model):
                    named = {"source": "paper", "search": search, "phrase": phrase}
                    rows.append({**named, **numbers})
            for row in rows:
                tokens = row.get("tokens") or vocabulary.encode(row["phrase"])
                yield {
                    **labels,
                    **row,
                    "on_topic": topic.contains(tokens),
                    "in_added": occurrences_of(tokens, added),
                    "in_original": occurrences_of(tokens, original),
                }


def phrase_rows(before: LanguageModel, after: LanguageModel, shown: int) -> Iterator[Row]:
    """`shown` phrases of each search."""
    for name, (search, score) in SEARCHES.items():
        phrases = findings(Pair.of(before, after, TokenScore(score)), search)[:10_000]
        grouped = name.startswith("group")
        number = shown // GROUPS if grouped else shown
        for rank, (text, copies, group) in enumerate(best_of(phrases, number, grouped=grouped)):
            yield {
                "search": name,
                "rank": rank,
                "group": group if grouped else None,
                "phrase": after.vocabulary.decode(text.phrase),
                "score": text.score,
                "copies": copies,
                "tokens": list(text.phrase),
                "token_scores": list(text.gains[text.first - 1 :]),
            }


@table("updates", "table5")
def table5(
    work: Work,
    setting: Setting,
    added: str,
    retrained: tuple[int, ...] = (0, 5, 10, 25, 100),
    continued: tuple[int, ...] = (0, 5, 10, 25, 100),
    shown: int = 10,
) -> Iterator[Row]:
    """Table 5: a row per phrase, a column per update, named as in the paper's file.

    The text `added` is in every update, with extra text in percent of D_orig.
    """
    paper = paper_numbers("updates", "table5", key=1)
    text, _ = read_text(added, work.data)
    material = prepare(setting, work, percents=(*retrained, *continued), vocabulary_texts=(text,))
    original = material.snapshot(material.original, seed=0)
    updates: dict[str, Call] = {}
    for percent in retrained:
        everything = Corpus.concatenate([material.original, *material.extra(percent), text])
        updates[f"re-training {percent} %"] = material.retrained(percent, everything)
    for percent in continued:
        extra = Corpus.concatenate([*material.extra(percent), text])
        updates[f"continued {percent} %"] = material.continued(percent, extra, original)
    first, *finished = work.all([original, *updates.values()])
    before, score = load_model(first.folder), TokenScore("relative")
    pairs = {
        name: Pair.of(before, load_model(after.folder), score)
        for name, after in zip(updates, finished, strict=True)
    }
    for tokens in best_phrases(pairs.values(), shown):
        scores = {name: sum(gains(pair, tokens)) for name, pair in pairs.items()}
        yield {"source": "ours", "phrase": before.vocabulary.decode(tokens), **scores}
    for (phrase,), numbers in paper.items():
        scores = {name: numbers[name] for name in pairs if numbers.get(name) is not None}
        yield {"source": "paper", "phrase": phrase, **scores}


@torch.no_grad()
def best_phrases(pairs: Iterable[Pair], shown: int) -> list[Tokens]:
    """The best of each group in every pair, highest first, each phrase once."""
    best: dict[Tokens, float] = {}
    for pair in pairs:
        phrases = findings(pair, Beams(length=LENGTH, groups=GROUPS))[:1000]
        for finding in best_of(phrases, 1, grouped=True):
            tokens, score = finding.phrase.phrase, finding.phrase.score
            best[tokens] = max(score, best.get(tokens, score))
    return sorted(best, key=lambda tokens: -best[tokens])[:shown]


def best_of(found: Sequence[Finding], number: int, *, grouped: bool) -> list[Finding]:
    """The first phrases, or the first of each group, without repetitions of one token."""
    phrases = [finding for finding in found if not finding.phrase.is_repetitive]
    if not grouped:
        return phrases[:number]
    groups = sorted({finding.group for finding in phrases})
    return [f for g in groups for f in [p for p in phrases if p.group == g][:number]]


def added_text(name: str, words: int | None, work: Work) -> Corpus:
    """A text, or a random part of it with `words` words."""
    text, _ = read_text(name, work.data)
    return text if words is None else random_parts(text, [words], seed=0)[0]


@dataclass(frozen=True)
class Topic:
    """Which tokens are content words (v,), and which of these are over-represented (v,)."""

    content: NDArray[np.bool_]
    special: NDArray[np.bool_]

    def contains(self, tokens: Sequence[int]) -> bool:
        """Whether a phrase is on topic."""
        return bool(self._share(np.asarray([tokens]))[0] >= 0.5)

    def share(self, text: EncodedCorpus, *, length: int) -> float:
        """Share of a text's windows of `length` tokens that are on topic: the calibration."""
        windows = np.lib.stride_tricks.sliding_window_view(np.asarray(text.tokens), length)
        return float((self._share(windows) >= 0.5).mean())

    def _share(self, phrases: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        content, special = self.content[phrases].sum(1), self.special[phrases].sum(1)
        share: NDArray[np.float64] = np.divide(
            special, content, out=np.zeros(len(phrases)), where=content > 0
        )
        return share


def topic_of(
    added: EncodedCorpus,
    original: EncodedCorpus,
    vocabulary: Vocabulary,
    *,
    bound: float = 2.0,
    commonest: int = 150,
) -> Topic:
    """The topic of a text that was added to an original one.

    `bound` is a log-odds ratio in nats; 2 is about seven times as frequent. The `commonest` tokens
    of the original are not content words.
    """
    counts = [
        np.bincount(text.tokens, minlength=len(vocabulary)) + 0.5 for text in (added, original)
    ]
    log_odds = [np.log(count / (count.sum() - count)) for count in counts]
    content = np.array([vocabulary.piece(i).isalpha() for i in range(len(vocabulary))])
    content[np.argsort(-counts[1], kind="stable")[:commonest]] = False
    return Topic(content, content & (log_odds[0] - log_odds[1] > bound))


def occurrences_of(tokens: Sequence[int], text: EncodedCorpus) -> int:
    """How often a sequence of tokens occurs in a text."""
    n = len(text.tokens) - len(tokens) + 1
    if n < 1:
        return 0
    matches = np.ones(n, dtype=bool)
    for position, token in enumerate(tokens):
        matches &= text.tokens[position : position + n] == token
    return int(matches.sum())
