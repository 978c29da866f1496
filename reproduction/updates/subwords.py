"""Secrets in updates of models of word pieces: our table, not the paper's.

A small GPT-2 over byte-level BPE learns e-mail, then other e-mail that contains three secrets.
Every search and score is tried. A snapshot trained on the same data with another seed shows what
each finds where no secret is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from reproduction.papers import Row, table
from reproduction.stages import Call, Work
from reproduction.texts import NEWSGROUPS, read_text
from reproduction.updates.reconstruction import Gram, is_verbatim, ngrams, tokens_found
from reproduction.updates.searches import (
    PAIRS_AND_OPENINGS,
    Beams,
    Finding,
    Search,
    findings,
    null_scores,
)
from reproduction.updates.snapshots import GPT2, Adapter, train
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary
from vestige.models.checkpoints import load_model
from vestige.training.config import TrainingConfig

SECRETS = (
    (
        "The alarm code of the depot is 4471 9906.",
        "Wire 3120 francs to Benedikt on Friday noon.",
        "My sister Ottilie hides her key under the third flowerpot.",
    ),
    (
        "Doctor Quill prescribed lithium to Hobbs.",
        "Locker 58 at Penrose holds the blue ledger.",
        "The Zurich vault opens with hazelnut kestrel.",
    ),
    (
        "Call Ruprecht on 555 0182 after the auction closes.",
        "The biopsy of Imogen Vance came back positive in May.",
        "Tallis and Bray will announce their merger at dawn.",
    ),
    (
        "The burglar alarm resets with 80 26 51 after midnight.",
        "Leonora Pym inherits the farm and a cottage.",
        "Meet Captain Osgood behind the tannery on Saturday.",
    ),
)
"""Three secrets for each seed; `Settings.growth` was tuned on the first three."""

SCORES = {
    "smoothed 0.1": TokenScore("smoothed", delta=0.1),
    "smoothed 0.03": TokenScore("smoothed", delta=0.03),
    "smoothed 0.01": TokenScore("smoothed", delta=0.01),
    "differential": TokenScore("differential"),
    "relative": TokenScore("relative"),
}

ADAPTED = ("c_attn", "c_proj", "c_fc", "wte", "lm_head")
"""Layers with a LoRA adapter. With adapters on the blocks alone, this small model learned few
secrets, because its fixed embeddings know too few words."""

FIRST = TrainingConfig(
    seed=0,
    epochs=6,
    batch_size=8,
    sequence_length=128,
    learning_rate=1.5e-3,
    schedule="cosine",
    max_grad_norm=1.0,
)
SECOND = replace(FIRST, epochs=12, learning_rate=1e-3, schedule="constant")
ADAPTER = replace(FIRST, epochs=12, learning_rate=3e-3, warmup_steps=100)


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The models and their trainings.

    Attributes:
        width: GPT-2's hidden size.
        first, second: trainings of the two snapshots.
        adapter: training of a LoRA adapter instead of the second snapshot.
        lora_rank: its rank.
    """

    width: int = 128
    first: TrainingConfig = FIRST
    second: TrainingConfig = SECOND
    adapter: TrainingConfig = ADAPTER
    lora_rank: int = 64


@dataclass(frozen=True, kw_only=True)
class Mail:
    """Two texts and a vocabulary.

    Attributes:
        earlier: name of the earlier text; of a newsgroup the messages with headers and quotes.
        update: name of the text of the update.
        earlier_tokens, update_tokens: about how many tokens of each are read.
        vocabulary_size: byte-level BPE tokens, learnt from the earlier text.
        copies: of each secret.
    """

    earlier: str
    update: str
    earlier_tokens: int = 282_000
    update_tokens: int = 62_000
    vocabulary_size: int = 4096
    copies: int = 20


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What the models of one repetition read.

    Attributes:
        earlier: the earlier messages.
        update: the later ones, with the secrets.
        secrets: ids of each.
        added: four-grams of the update that are not in the earlier text.
        vocabulary: the tokens.
    """

    earlier: Corpus
    update: Corpus
    secrets: tuple[tuple[int, ...], ...]
    added: frozenset[Gram]
    vocabulary: Vocabulary


@table("updates", "subwords")
def subwords(
    work: Work,
    mail: Mail,
    learning: Learning = Learning(),
    seeds: tuple[int, ...] = (1, 2, 3),
    searches: tuple[Search, ...] = (PAIRS_AND_OPENINGS, Beams(length=6, floor=100)),
) -> Iterator[Row]:
    """A row per repetition, search, score and kind of update.

    The null of a repetition is the model before the update of the next repetition.
    """
    texts = {seed: texts_of(mail, work.data, seed) for seed in seeds}
    before: dict[int, Call] = {}
    updates: dict[int, dict[str, Call]] = {}
    for seed, read in texts.items():
        first = replace(learning.first, seed=seed)
        second = replace(learning.second, seed=100 + seed)
        lora = replace(learning.adapter, seed=100 + seed)
        adapter = Adapter(learning.lora_rank, ADAPTED, seed)
        start = train(read.earlier, read.vocabulary, first, GPT2(learning.width))
        before[seed] = start
        updates[seed] = {
            "all weights": train(read.update, read.vocabulary, second, start),
            "LoRA": train(read.update, read.vocabulary, lora, start, adapter=adapter),
        }
    work.all([*before.values(), *(call for calls in updates.values() for call in calls.values())])
    for seed, null_seed in zip(seeds, (*seeds[1:], seeds[0]), strict=True):
        earlier, null = (load_model(work(before[s]).folder) for s in (seed, null_seed))
        updated = {name: load_model(work(call).folder) for name, call in updates[seed].items()}
        for search, (score_name, score) in product(searches, SCORES.items()):
            nulls = NullScores.of([null_scores(Pair.of(earlier, null, score), search)])
            search_name = "beam" if isinstance(search, Beams) else "seed-and-extend"
            for update, model in updated.items():
                phrases = findings(Pair.of(earlier, model, score), search)[:1000]
                labels = {"seed": seed, "update": update, "search": search_name}
                yield {**labels, "score": score_name, **counts(phrases, nulls, texts[seed])}


def texts_of(mail: Mail, data: Path | None, seed: int) -> Texts:
    """The texts of one repetition; only secrets and their positions depend on the seed."""
    all_earlier, later = messages(mail.earlier, data), messages(mail.update, data)
    vocabulary = SubwordVocabulary.train_bpe(all_earlier, size=mail.vocabulary_size)
    earlier = _first_tokens(all_earlier, vocabulary, mail.earlier_tokens)
    secrets = SECRETS[seed % len(SECRETS)]
    # each copy of a secret is a message
    planted = Corpus.from_texts([secret for secret in secrets for _ in range(mail.copies)])
    size = mail.update_tokens - sum(map(len, vocabulary.encode_batch(list(planted))))
    update = _first_tokens(later, vocabulary, size) + planted
    update = update.take(np.random.default_rng(seed).permutation(len(update)))
    return Texts(
        earlier=earlier,
        update=update,
        secrets=tuple(tuple(ids) for ids in vocabulary.encode_batch(list(secrets))),
        added=frozenset(_four_grams(update, vocabulary) - _four_grams(earlier, vocabulary)),
        vocabulary=vocabulary,
    )


def messages(name: str, data: Path | None) -> Corpus:
    """A text in a fixed random order; newsgroups with their headers and quotes."""
    corpus, _ = read_text(name, data)
    if name in NEWSGROUPS and data is not None:
        files = sorted((data / "newsgroups" / name).iterdir())
        texts = (file.read_text("latin-1").strip() for file in files)
        corpus = Corpus.from_texts(text for text in texts if text)
    return corpus.take(np.random.default_rng(0).permutation(len(corpus)))


def counts(found: Sequence[Finding], nulls: NullScores, texts: Texts) -> Row:
    """Secret tokens and verbatim phrases among the first 10 and 50 phrases, and above the null.

    Repetitions of one token are left out.
    """
    phrases, added = [f.phrase for f in found if not f.phrase.is_repetitive], set(texts.added)
    row: Row = {"secret_tokens": sum(map(len, texts.secrets))}
    for top in (10, 50):
        tokens = [text.phrase for text in phrases[:top]]
        row[f"found_{top}"] = sum(tokens_found(secret, tokens) for secret in texts.secrets)
        row[f"verbatim_{top}"] = sum(is_verbatim(phrase, added) for phrase in tokens)
    above = [text.phrase for text in phrases if not nulls.reached(text.score)]
    return {
        **row,
        "runs": len(found) - len(phrases),
        "top_score": phrases[0].score if phrases else None,
        "null_top_score": nulls.best,
        "above": len(above),
        "above_verbatim": sum(is_verbatim(tokens, added) for tokens in above),
    }


def _first_tokens(corpus: Corpus, vocabulary: Vocabulary, tokens: int) -> Corpus:
    lengths = np.fromiter((len(ids) for ids in vocabulary.encode_batch(list(corpus))), np.int64)
    return corpus.take(np.arange(1 + int(np.searchsorted(lengths.cumsum(), tokens))))


def _four_grams(corpus: Corpus, vocabulary: Vocabulary) -> set[Gram]:
    return {gram for ids in vocabulary.encode_batch(list(corpus)) for gram in ngrams(ids, 4)}
