"""Tables of real text: phrases of a newsgroup that was added to Reddit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from reproduction.papers import Numbers, Plan, Row, Rows, paper_numbers, table
from reproduction.texts import random_parts, read_text
from reproduction.updates.beam_search import Beams
from reproduction.updates.exposures import gains
from reproduction.updates.searches import PAIRS_AND_OPENINGS, Finding, findings
from reproduction.updates.settings import Material, Setting, Snapshot, extended, prepare
from reproduction.updates.topics import Topic, occurrences_of, topic_of
from vestige.audits.update.pair import Pair, Tokens
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Settings
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.models.protocols import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A text added to another, and how it is searched for.

    Attributes:
        setting: the text before and the model.
        added: names of the texts, each added in an update of its own.
        words: of each added text, drawn at random; None: all.
        length: tokens of a phrase in the beam searches.
        groups: of the group beam search.
        shown: phrases listed of each search, as many of each group.
        bound: log-odds ratio from which a word speaks of the added text.
    """

    setting: Setting
    added: tuple[str, ...]
    words: int | None = None
    length: int = 4
    groups: int = 5
    shown: int = 20
    bound: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Persistence:
    """One added text in updates with more or less extra text beside it.

    Attributes:
        setting: its `words` are those of D_orig.
        added: the text's name.
        retrained: extra text in percent of D_orig.
        continued: the same, for continued training.
        length: tokens of a phrase.
        groups: of the group beam search whose findings are followed.
        shown: phrases followed, at most.
    """

    setting: Setting
    added: str
    retrained: tuple[int, ...] = (0, 5, 10, 25, 100)
    continued: tuple[int, ...] = (0, 5, 10, 25, 100)
    length: int = 4
    groups: int = 5
    shown: int = 10


@table("updates", "tables3-4")
def addition_plan(additions: tuple[Addition, ...], directory: Path, data: Path | None) -> Plan:
    """Tables 3 and 4: a row for each phrase found, and for each of the paper's.

    Both models are trained from fresh weights, with seeds 0 and 100. A null pair, the original
    learnt again with seed 1, tells what the searches find where nothing was added; what speaks of
    the added text there does so by chance, for one vocabulary knows both texts.
    """
    paper = paper_numbers("updates", "tables34", key=4)
    updates = [one for of in additions for one in _added(of, directory, data)]

    def rows() -> Iterator[Row]:
        for update in updates:
            yield from update.rows(paper)

    trials = [one for update in updates for one in update.snapshots]
    return Plan(trials=trials, rows=rows, remark=on_topic_counts)


@dataclass(frozen=True)
class _Added:
    """One text added to another: the original, the original again, and with the text."""

    addition: Addition
    material: Material
    name: str
    text: Corpus
    snapshots: tuple[Snapshot, Snapshot, Snapshot]

    def rows(self, paper: Numbers) -> Iterator[Row]:
        """Phrases found in the update and in the null pair, and the paper's."""
        before, again, after = self.snapshots
        vocabulary, length = self.material.vocabulary, self.addition.length
        added, original = (encode(t, vocabulary) for t in (self.text, self.material.original))
        topic = topic_of(added, original, vocabulary, bound=self.addition.bound)
        common = {
            "added": self.name,
            **self.material.learnt(before, after),
            "topic_share_added": topic.share(added, length=length),
            "topic_share_original": topic.share(original, length=length),
        }
        first = before.model()
        for source, later in (("ours", after), ("null", again)):
            for row in _found(first, later.model(), self.addition):
                judged = _judged(row["tokens"], topic, added, original)
                yield {**common, "source": source, **row, **judged}
        for (name, model, search, phrase), known in paper.items():
            if (name, model) == (self.name, self.addition.setting.model):
                row = {"source": "paper", "search": search, "phrase": phrase, **known}
                judged = _judged(vocabulary.encode(str(phrase)), topic, added, original)
                yield {**common, **row, **judged}


def _added(addition: Addition, directory: Path, data: Path | None) -> Iterator[_Added]:
    texts = {name: _text_of(name, addition.words, data) for name in addition.added}
    material = prepare(addition.setting, directory, data, read_too=tuple(texts.values()))
    before, again = (
        material.snapshot(name, material.original, seed=seed)
        for seed, name in enumerate(("original", "original-again"))
    )
    for name, text in texts.items():
        whole = Corpus.concatenate([material.original, text])
        after = material.snapshot(f"with-{name}", whole, seed=100)
        yield _Added(addition, material, name, text, (before, again, after))


@table("updates", "table5")
def persistence_plan(persistence: Persistence, directory: Path, data: Path | None) -> Plan:
    """Table 5: a row for each phrase, a column for each update, named as in the paper's file."""
    paper = paper_numbers("updates", "table5", key=1)
    added, _ = read_text(persistence.added, data)
    percents = (*persistence.retrained, *persistence.continued)
    material = extended(persistence.setting, directory, data, percents, read_too=(added,))
    original = material.snapshot("original", material.original, seed=0)
    updates: dict[str, Snapshot] = {}
    for percent in persistence.retrained:
        text = Corpus.concatenate([material.original, *material.extra(percent), added])
        updates[f"re-training {percent} %"] = material.retrained(percent, text)
    for percent in persistence.continued:
        text = Corpus.concatenate([*material.extra(percent), added])
        updates[f"continued {percent} %"] = material.continued(percent, text, original)

    def rows() -> Iterator[Row]:
        before, score = original.model(), TokenScore("relative")
        pairs = {name: Pair.of(before, one.model(), score) for name, one in updates.items()}
        for tokens in _followed(pairs.values(), persistence):
            ours = {name: sum(gains(pair, tokens)) for name, pair in pairs.items()}
            yield {"source": "ours", "phrase": before.vocabulary.decode(tokens), **ours}
        for (phrase,), known in paper.items():
            theirs = {name: known[name] for name in pairs if known.get(name) is not None}
            yield {"source": "paper", "phrase": phrase, **theirs}

    return Plan(trials=[original, *updates.values()], rows=rows)


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
            counts.append(f"{search} {_told(listed)}, {verbatim} verbatim, null {_told(null)}")
        own, other = of_pair[0]["topic_share_added"], of_pair[0]["topic_share_original"]
        lines.append(
            f"On topic, {added}, {model}: {'; '.join(counts)}. By the same measure {own:.1%} of "
            f"the added text's own windows are on topic, and {other:.1%} of the original's."
        )
    return " ".join(lines)


def _told(rows: Rows) -> str:
    told = f"{sum(row['on_topic'] for row in rows)} of {len(rows)}"
    return f"{told} (highest score {max(row['score'] for row in rows):.3g})" if rows else told


def _text_of(name: str, words: int | None, data: Path | None) -> Corpus:
    text, _ = read_text(name, data)
    return text if words is None else random_parts(text, [words], seed=0)[0]


def _searches(addition: Addition) -> dict[str, tuple[Beams | Settings, str]]:
    length = addition.length
    return {
        "group": (Beams(length=length, groups=addition.groups), "relative"),
        "vanilla": (Beams(length=length), "relative"),
        "group, smoothed": (Beams(length=length, groups=addition.groups), "smoothed"),
        "seed and extend": (PAIRS_AND_OPENINGS, "smoothed"),
    }


def _found(before: LanguageModel, after: LanguageModel, addition: Addition) -> Iterator[Row]:
    for search_name, (search, score) in _searches(addition).items():
        found = findings(Pair.of(before, after, TokenScore(score)), search)[:10_000]
        grouped = search_name.startswith("group")
        per_group = addition.shown // addition.groups if grouped else addition.shown
        for rank, (text, copies, group) in enumerate(_best(found, per_group, grouped=grouped)):
            yield {
                "search": search_name,
                "rank": rank,
                "group": group if grouped else None,
                "phrase": after.vocabulary.decode(text.phrase),
                "score": text.score,
                "copies": copies,
                "tokens": list(text.phrase),
                "token_scores": list(text.gains[text.first - 1 :]),
            }


def _best(found: Sequence[Finding], number: int, *, grouped: bool) -> list[Finding]:
    """The first phrases, or the first of each group; runs of one token are no phrases."""
    phrases = [finding for finding in found if not finding.phrase.is_run]
    if not grouped:
        return phrases[:number]
    groups = sorted({finding.group for finding in phrases})
    return [f for g in groups for f in [p for p in phrases if p.group == g][:number]]


def _judged(
    tokens: Sequence[int], topic: Topic, added: EncodedCorpus, original: EncodedCorpus
) -> Row:
    return {
        "on_topic": topic.holds(tokens),
        "in_added": occurrences_of(tokens, added),
        "in_original": occurrences_of(tokens, original),
    }


@torch.no_grad()
def _followed(pairs: Iterable[Pair], persistence: Persistence) -> list[Tokens]:
    """The best of each group in every pair, highest first, each phrase once."""
    best: dict[Tokens, float] = {}
    search = Beams(length=persistence.length, groups=persistence.groups)
    for pair in pairs:
        for finding in _best(findings(pair, search)[:1000], 1, grouped=True):
            tokens, score = finding.phrase.phrase, finding.phrase.score
            best[tokens] = max(score, best.get(tokens, score))
    return sorted(best, key=lambda tokens: -best[tokens])[: persistence.shown]
