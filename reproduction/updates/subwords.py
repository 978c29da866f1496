"""Whole secrets in updates of models of word pieces, which is ours and not the paper's.

A small GPT-2 over byte-level BPE learns e-mail and is continued on other e-mail that holds three
secrets. Every search and score is tried; a snapshot of the same data with another seed shows what
each finds where there is nothing to find.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from reproduction.papers import Plan, table
from reproduction.texts import NEWSGROUPS, read_text
from reproduction.updates.beam_search import Beams
from reproduction.updates.reconstruction import Gram, is_verbatim, ngrams, tokens_found
from reproduction.updates.searches import (
    PAIRS_AND_OPENINGS,
    Finding,
    findings,
    null_scores,
)
from reproduction.updates.settings import Snapshot, Start
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.settings import Settings
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary
from vestige.models.protocols import LanguageModel
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
"""Three secrets for each seed; the growth of `Settings` was chosen on the first three."""

SCORES = {
    "smoothed 0.1": TokenScore("smoothed", delta=0.1),
    "smoothed 0.03": TokenScore("smoothed", delta=0.03),
    "smoothed 0.01": TokenScore("smoothed", delta=0.01),
    "differential": TokenScore("differential"),
    "relative": TokenScore("relative"),
}

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

ADAPTED = ("c_attn", "c_proj", "c_fc", "wte", "lm_head")
"""The layers with a LoRA adapter. So small a model knows too few words to say those of a secret
when its embeddings stay: with adapters on the blocks alone it hardly learnt the secrets."""


@dataclass(frozen=True, kw_only=True)
class Subwords:
    """One scale of the experiment.

    Attributes:
        earlier: name of the earlier text; of a newsgroup the messages as they stand.
        update: name of the text of the update.
        earlier_tokens, update_tokens: about how many tokens of each are read.
        vocabulary_size: byte-level BPE tokens, learnt from the earlier text.
        copies: of each secret.
        seeds: repetitions; the model before a repetition's update is the next one's null.
        width: GPT-2's hidden size (4 layers of 4 heads).
        first, second: trainings of the two snapshots.
        adapter: training of a LoRA adapter in place of the second snapshot.
        lora_rank: its rank.
        searches: each is tried with every score.
    """

    earlier: str
    update: str
    earlier_tokens: int = 282_000
    update_tokens: int = 62_000
    vocabulary_size: int = 4096
    copies: int = 20
    seeds: tuple[int, ...] = (1, 2, 3)
    width: int = 128
    first: TrainingConfig = FIRST
    second: TrainingConfig = SECOND
    adapter: TrainingConfig = ADAPTER
    lora_rank: int = 64
    searches: tuple[Settings | Beams, ...] = (
        PAIRS_AND_OPENINGS,
        Beams(length=6, floor=100),
    )


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What the models read.

    Attributes:
        earlier: the earlier messages.
        update: the later ones, secrets among them.
        secrets: ids of each.
        added: four-grams of the update that the earlier text does not have.
        vocabulary: the tokens.
    """

    earlier: Corpus
    update: Corpus
    secrets: tuple[tuple[int, ...], ...]
    added: frozenset[Gram]
    vocabulary: Vocabulary


def messages(name: str, data: Path | None) -> Corpus:
    """A text in a fixed random order; newsgroups with their headers and quotes."""
    corpus, _ = read_text(name, data)
    if name in NEWSGROUPS and data is not None:
        files = sorted((data / "newsgroups" / name).iterdir())
        whole = (file.read_text("latin-1").strip() for file in files)
        corpus = Corpus.from_texts(text for text in whole if text)
    return corpus.take(np.random.default_rng(0).permutation(len(corpus)))


def texts(config: Subwords, data: Path | None, seed: int) -> Texts:
    """The texts of one repetition; only secrets and their places depend on the seed."""
    whole, later = messages(config.earlier, data), messages(config.update, data)
    vocabulary = SubwordVocabulary.train_bpe(whole, size=config.vocabulary_size)
    earlier = _first_tokens(whole, vocabulary, config.earlier_tokens)
    secrets = SECRETS[seed % len(SECRETS)]
    # each is a document of its own among the messages
    planted = Corpus.from_texts([secret for secret in secrets for _ in range(config.copies)])
    size = config.update_tokens - sum(map(len, vocabulary.encode_batch(list(planted))))
    update = _first_tokens(later, vocabulary, size) + planted
    update = update.take(np.random.default_rng(seed).permutation(len(update)))
    had = _four_grams(earlier, vocabulary)
    return Texts(
        earlier=earlier,
        update=update,
        secrets=tuple(tuple(ids) for ids in vocabulary.encode_batch(list(secrets))),
        added=frozenset(_four_grams(update, vocabulary) - had),
        vocabulary=vocabulary,
    )


def gpt2(vocabulary: Vocabulary, width: int, seed: int) -> LanguageModel:
    """An untrained GPT-2 of four layers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from vestige.models.hugging_face import HuggingFaceLanguageModel

    if not isinstance(vocabulary, SubwordVocabulary):
        raise ValueError(f"vocabulary must be of subwords, got {type(vocabulary).__name__}")
    settings = GPT2Config(
        vocab_size=len(vocabulary), n_positions=256, n_embd=width, n_layer=4, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return HuggingFaceLanguageModel(GPT2LMHeadModel(settings), vocabulary)


def adapter_on(model: LanguageModel, rank: int, seed: int) -> LanguageModel:
    """A fresh LoRA adapter on a model."""
    import torch

    from vestige.models.hugging_face import HuggingFaceLanguageModel
    from vestige.models.lora import add_lora

    if not isinstance(model, HuggingFaceLanguageModel):
        raise ValueError(f"model must be a Hugging Face one, got {type(model).__name__}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return add_lora(model, rank=rank, alpha=2 * rank, target_modules=ADAPTED)


@dataclass(frozen=True)
class GPT2Start:
    """Fresh weights of a GPT-2 of a hidden size."""

    width: int

    def started(self, vocabulary: Vocabulary, seed: int) -> LanguageModel:
        """The untrained model."""
        return gpt2(vocabulary, self.width, seed)


@dataclass(frozen=True)
class AdapterStart:
    """A fresh LoRA adapter on a finished snapshot."""

    on: Snapshot
    rank: int
    seed: int

    def started(self, vocabulary: Vocabulary, seed: int) -> LanguageModel:
        """The snapshot with its adapter."""
        return adapter_on(self.on.model(), self.rank, self.seed)


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The models of one repetition."""

    texts: Texts
    before: Snapshot
    another: Snapshot  # the model before the update, from another seed
    after: Mapping[str, Snapshot]  # all weights continued, and a LoRA adapter, by name

    @property
    def models(self) -> tuple[Snapshot, ...]:
        """All of them."""
        return (self.another, self.before, *self.after.values())


def repetition(
    config: Subwords, directory: Path, data: Path | None, *, seed: int, other: int
) -> Repetition:
    """One repetition, a folder for each model; `other` is the seed of its null."""
    read = texts(config, data, seed)

    def model(name: str, text: Corpus, training: TrainingConfig, start: Start) -> Snapshot:
        return Snapshot(
            directory=directory / name,
            corpus=text,
            vocabulary=read.vocabulary,
            config=training,
            start=start,
        )

    before, another = (
        model(f"before-{n}", read.earlier, replace(config.first, seed=n), GPT2Start(config.width))
        for n in (seed, other)
    )
    second, adapter = (
        replace(training, seed=100 + seed) for training in (config.second, config.adapter)
    )
    on = AdapterStart(before, config.lora_rank, seed)
    after = {
        "all weights": model(f"after-{seed}", read.update, second, before),
        "LoRA": model(f"lora-{seed}", read.update, adapter, on),
    }
    return Repetition(texts=read, before=before, another=another, after=after)


def judged(found: Sequence[Finding], nulls: NullScores | None, read: Texts) -> dict[str, object]:
    """What the first 10 and 50 phrases reveal, without runs, and how many are the update's own."""
    phrases, added = [one.phrase for one in found if not one.phrase.is_run], set(read.added)
    row: dict[str, object] = {"secret_tokens": sum(map(len, read.secrets))}
    for top in (10, 50):
        tokens = [text.phrase for text in phrases[:top]]
        row[f"found_{top}"] = sum(tokens_found(secret, tokens) for secret in read.secrets)
        row[f"verbatim_{top}"] = sum(is_verbatim(t, added) for t in tokens)
    above = [f.phrase for f in phrases if nulls is not None and not nulls.reached(f.score)]
    return {
        **row,
        "runs": len(found) - len(phrases),
        "top_score": phrases[0].score if phrases else None,
        "null_top_score": None if nulls is None else nulls.best,
        "above": len(above),
        "above_verbatim": sum(is_verbatim(tokens, added) for tokens in above),
    }


@table("updates", "subwords")
def subword_plan(config: Subwords, directory: Path, data: Path | None) -> Plan:
    """A row for each repetition, kind of update, search and score."""
    others = (*config.seeds[1:], config.seeds[0])
    repetitions = {
        seed: repetition(config, directory, data, seed=seed, other=other)
        for seed, other in zip(config.seeds, others, strict=True)
    }

    def rows() -> Iterator[dict[str, object]]:
        for seed, made in repetitions.items():
            another, before = made.another.model(), made.before.model()
            after = {name: one.model() for name, one in made.after.items()}
            for search, (name, score) in product(config.searches, SCORES.items()):
                clean = null_scores(Pair.of(before, another, score), search)
                nulls = NullScores.of([clean])
                how = "beam" if isinstance(search, Beams) else "seed-and-extend"
                for update, later in after.items():
                    found = findings(Pair.of(before, later, score), search)[:1000]
                    named = {"seed": seed, "update": update, "search": how, "score": name}
                    yield {**named, **judged(found, nulls, made.texts)}

    trials = [one for made in repetitions.values() for one in made.models]
    return Plan(trials=trials, rows=rows)


def _first_tokens(corpus: Corpus, vocabulary: Vocabulary, tokens: int) -> Corpus:
    lengths = np.fromiter((len(ids) for ids in vocabulary.encode_batch(list(corpus))), np.int64)
    return corpus.take(np.arange(1 + int(np.searchsorted(lengths.cumsum(), tokens))))


def _four_grams(corpus: Corpus, vocabulary: Vocabulary) -> set[Gram]:
    return {gram for ids in vocabulary.encode_batch(list(corpus)) for gram in ngrams(ids, 4)}
