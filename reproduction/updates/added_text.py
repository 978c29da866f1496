"""Tables of real text: phrases of a newsgroup that was added to Reddit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from reproduction.papers import Numbers, Row, Rows, paper_numbers, table
from reproduction.stages import Call, Work
from reproduction.texts import random_parts, read_text
from reproduction.updates.beam_search import Beams
from reproduction.updates.exposures import gains
from reproduction.updates.searches import PAIRS_AND_OPENINGS, Finding, Search, findings
from reproduction.updates.snapshots import Material, Setting, extended, prepare
from reproduction.updates.topics import Topic, occurrences_of, topic_of
from vestige.audits.update.pair import Pair, Tokens
from vestige.audits.update.scores import TokenScore
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
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
        added: names of the texts, each added in an update of its own.
        words: of each added text, drawn at random; None: all.
        shown: phrases listed of each search, as many of each group.
    """

    setting: Setting
    added: tuple[str, ...]
    words: int | None = None
    shown: int = 20


def on_topic_counts(rows: Rows) -> str:
    """Phrases of each search: on topic, verbatim, and how many a null pair and the texts have."""
    lines = []
    for added, model in dict.fromkeys((row["added"], row["model"]) for row in rows):
        of_pair = [row for row in rows if (row["added"], row["model"]) == (added, model)]
        counts = []
        for search in dict.fromkeys(row["search"] for row in of_pair if row["source"] == "ours"):
            listed, null = (
                [r for r in of_pair if (r["search"], r["source"]) == (search, source)]
                for source in ("ours", "null")
            )
            verbatim = sum(r["in_added"] > 0 for r in listed)
            counts.append(
                f"{search} {_counted(listed)}, {verbatim} verbatim, null {_counted(null)}"
            )
        own, other = of_pair[0]["topic_share_added"], of_pair[0]["topic_share_original"]
        lines.append(
            f"On topic, {added}, {model}: {'; '.join(counts)}. By the same measure {own:.1%} of "
            f"the added text's own windows are on topic, and {other:.1%} of the original's."
        )
    return " ".join(lines)


@table("updates", "tables3-4", remark=on_topic_counts)
def tables34(work: Work, additions: tuple[Addition, ...]) -> Iterator[Row]:
    """Tables 3 and 4: a row for each phrase found, and for each of the paper's.

    Both models are trained from fresh weights, with seeds 0 and 100. A null pair, the original
    learnt again with seed 1, tells what the searches find where nothing was added; what is on the
    added text's topic there is so by chance, for one vocabulary knows both texts.
    """
    paper = paper_numbers("updates", "tables34", key=4)
    for addition in additions:
        texts = {name: added_text(name, addition.words, work) for name in addition.added}
        material = prepare(addition.setting, work, read_too=tuple(texts.values()))
        original = [material.snapshot(material.original, seed=seed) for seed in (0, 1)]
        after = {
            name: material.snapshot(Corpus.concatenate([material.original, text]), seed=100)
            for name, text in texts.items()
        }
        work.all([*original, *after.values()])
        for name, text in texts.items():
            calls = (*original, after[name])
            yield from phrase_rows(work, addition, material, name, text, calls, paper)


def phrase_rows(
    work: Work,
    addition: Addition,
    material: Material,
    name: str,
    text: Corpus,
    calls: Sequence[Call],
    paper: Numbers,
) -> Iterator[Row]:
    """Phrases found in an update and in its null pair, and the paper's.

    `calls` train the original, the original again, and the text that was added to it.
    """
    first, again, later = work.all(calls)
    added, original = (encode(t, material.vocabulary) for t in (text, material.original))
    topic = topic_of(added, original, material.vocabulary)
    common = {
        "added": name,
        **material.learnt(first, later),
        "topic_share_added": topic.share(added, length=LENGTH),
        "topic_share_original": topic.share(original, length=LENGTH),
    }
    before = load_model(first.folder)
    for source, done in (("ours", later), ("null", again)):
        for row in found_rows(before, load_model(done.folder), addition.shown):
            judged = _judged(row["tokens"], topic, added, original)
            yield {**common, "source": source, **row, **judged}
    for (newsgroup, model, search, phrase), known in paper.items():
        if (newsgroup, model) == (name, addition.setting.model):
            judged = _judged(material.vocabulary.encode(str(phrase)), topic, added, original)
            yield {
                **common,
                "source": "paper",
                "search": search,
                "phrase": phrase,
                **known,
                **judged,
            }


def found_rows(before: LanguageModel, after: LanguageModel, shown: int) -> Iterator[Row]:
    """So many phrases of each search."""
    for name, (search, score) in SEARCHES.items():
        found = findings(Pair.of(before, after, TokenScore(score)), search)[:10_000]
        grouped = name.startswith("group")
        number = shown // GROUPS if grouped else shown
        for rank, (text, copies, group) in enumerate(best_of(found, number, grouped=grouped)):
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
    """Table 5: a row for each phrase, a column for each update, named as in the paper's file.

    The text of the name `added` is in every update, with extra text in percent of D_orig.
    """
    paper = paper_numbers("updates", "table5", key=1)
    text, _ = read_text(added, work.data)
    material = extended(setting, work, (*retrained, *continued), read_too=(text,))
    original = material.snapshot(material.original, seed=0)
    updates: dict[str, Call] = {}
    for percent in retrained:
        whole = Corpus.concatenate([material.original, *material.extra(percent), text])
        updates[f"re-training {percent} %"] = material.retrained(percent, whole)
    for percent in continued:
        part = Corpus.concatenate([*material.extra(percent), text])
        updates[f"continued {percent} %"] = material.continued(percent, part, original)
    first, *finished = work.all([original, *updates.values()])
    before, score = load_model(first.folder), TokenScore("relative")
    pairs = {
        name: Pair.of(before, load_model(done.folder), score)
        for name, done in zip(updates, finished, strict=True)
    }
    for tokens in followed(pairs.values(), shown):
        ours = {name: sum(gains(pair, tokens)) for name, pair in pairs.items()}
        yield {"source": "ours", "phrase": before.vocabulary.decode(tokens), **ours}
    for (phrase,), known in paper.items():
        theirs = {name: known[name] for name in pairs if known.get(name) is not None}
        yield {"source": "paper", "phrase": phrase, **theirs}


@torch.no_grad()
def followed(pairs: Iterable[Pair], shown: int) -> list[Tokens]:
    """The best of each group in every pair, highest first, each phrase once."""
    best: dict[Tokens, float] = {}
    for pair in pairs:
        found = findings(pair, Beams(length=LENGTH, groups=GROUPS))[:1000]
        for finding in best_of(found, 1, grouped=True):
            tokens, score = finding.phrase.phrase, finding.phrase.score
            best[tokens] = max(score, best.get(tokens, score))
    return sorted(best, key=lambda tokens: -best[tokens])[:shown]


def best_of(found: Sequence[Finding], number: int, *, grouped: bool) -> list[Finding]:
    """The first phrases, or the first of each group; runs of one token are no phrases."""
    phrases = [finding for finding in found if not finding.phrase.is_repetitive]
    if not grouped:
        return phrases[:number]
    groups = sorted({finding.group for finding in phrases})
    return [f for g in groups for f in [p for p in phrases if p.group == g][:number]]


def added_text(name: str, words: int | None, work: Work) -> Corpus:
    """A text, or a random part of it of so many words."""
    text, _ = read_text(name, work.data)
    return text if words is None else random_parts(text, [words], seed=0)[0]


def _judged(
    tokens: Sequence[int], topic: Topic, added: EncodedCorpus, original: EncodedCorpus
) -> Row:
    return {
        "on_topic": topic.holds(tokens),
        "in_added": occurrences_of(tokens, added),
        "in_original": occurrences_of(tokens, original),
    }


def _counted(rows: Rows) -> str:
    told = f"{sum(row['on_topic'] for row in rows)} of {len(rows)}"
    return f"{told} (highest score {max(row['score'] for row in rows):.3g})" if rows else told
