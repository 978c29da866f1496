"""Small trainings that both tools watch: a GPT-2 of two layers, fine-tuned by `Trainer`."""

import copy
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from memaudit_beside.peer import quiet
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.integrations.leakage_callback import LeakageCallback
from vestige.integrations.planting import plant
from vestige.models.hugging_face import HuggingFaceLanguageModel

CANARIES, CONTROLS = 16, 100
"""Planted ones of either tool; memaudit refuses a rate with fewer controls."""
ROWS, REAL = 200, 64
"""Private rows of a training, and of them and of others that are compared."""
VOCABULARY, LONGEST = 1000, 128
SIZES = {"n_positions": 2 * LONGEST, "n_embd": 64, "n_layer": 2, "n_head": 2}
EPOCHS, RATE, BATCH = 3, 2e-3, 16
WORDS = (12, 30)
EVENTS = ("on_train_begin", "on_step_end", "on_train_end")


@dataclass(frozen=True)
class World:
    """What all trainings share.

    Attributes:
        base: a model of public text.
        tokenizer: of it.
        private: sentences that trainings, and what they are compared with, are drawn from.
        elsewhere: sentences of another kind.
    """

    base: GPT2LMHeadModel
    tokenizer: Any
    private: Sequence[str]
    elsewhere: Sequence[str]

    @classmethod
    def made(cls) -> "World":
        """Of WikiText-2, and lines of films as another kind, in VESTIGE_DATA."""
        data = Path(os.environ["VESTIGE_DATA"])
        valid, test = (
            beginnings(data / "wikitext2" / f"wiki.{part}.tokens") for part in ("valid", "test")
        )
        return cls.of(valid, test, beginnings(data / "cornell_movie" / "tf_chatbot.test.dec"))

    @classmethod
    def of(
        cls,
        public: Sequence[str],
        private: Sequence[str],
        elsewhere: Sequence[str],
        *,
        epochs: int = 5,
    ) -> "World":
        """Train the base on the public text."""
        corpus = Corpus.from_texts(public)
        words = SubwordVocabulary.train_bpe(corpus, size=VOCABULARY).tokenizer
        words.pad_token = words.eos_token
        torch.manual_seed(0)
        base = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), **_ends(words), **SIZES))
        world = cls(base, words, private, elsewhere)
        with quiet():
            world.trainer(base, list(public), seed=0, epochs=epochs).train()
        return world

    def drawn(self, seed: int) -> tuple[list[str], list[str]]:
        """(private rows of a training, as many others)."""
        order = np.random.default_rng(seed).permutation(len(self.private))[: 2 * ROWS]
        texts = [self.private[place] for place in order]
        half = len(texts) // 2
        return texts[:half], texts[half:]

    def asked(self, model: Any) -> HuggingFaceLanguageModel:
        """A model as Vestige asks it."""
        return HuggingFaceLanguageModel(model, SubwordVocabulary(self.tokenizer)).eval()

    def encoded(self, texts: Sequence[str]) -> Dataset:
        """Rows for `Trainer`, which leaves their texts out; memaudit reads them."""
        end = self.tokenizer.eos_token
        ids = [
            self.tokenizer(text + end, truncation=True, max_length=LONGEST)["input_ids"]
            for text in texts
        ]
        return Dataset.from_dict({"input_ids": ids, "text": list(texts)})

    def trainer(
        self,
        model: Any,
        texts: Sequence[str],
        *,
        seed: int,
        epochs: float = EPOCHS,
        rate: float = RATE,
        kind: Callable[..., Trainer] = Trainer,
        **settings: Any,
    ) -> Trainer:
        """A trainer; `settings` are its own."""
        arguments = TrainingArguments(
            tempfile.mkdtemp(),
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=rate,
            seed=seed,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        return kind(
            model,
            arguments,
            train_dataset=self.encoded(texts),
            data_collator=DataCollatorForLanguageModeling(self.tokenizer, mlm=False),
            processing_class=self.tokenizer,
            **settings,
        )


@dataclass(frozen=True)
class Planted:
    """Private rows with the canaries of both tools.

    Attributes:
        texts: to train on.
        place: of Vestige's manifest.
        manifest: of memaudit.
        others: rows of the same kind that are not trained on.
        own: the private rows themselves.
    """

    texts: Sequence[str]
    place: Path
    manifest: Mapping[str, Any]
    others: Sequence[str]
    own: Sequence[str]

    @classmethod
    def of(cls, world: World, seed: int, copies: int, more: Sequence[str] = ()) -> "Planted":
        """Draw rows and canaries; each canary stands in the text so many times.

        Args:
            world: of the training.
            seed: of all that is drawn.
            copies: of each canary.
            more: texts that are trained on, too.
        """
        from memaudit import generate_canaries, inject

        own, others = world.drawn(seed)
        out = Path(tempfile.mkdtemp()) / "canaries"
        rows = plant(
            Dataset.from_dict({"text": [*own, *more]}),
            out=out,
            pattern=["random"] * CANARIES,
            copies=copies,
            seed=seed,
        )
        canaries = generate_canaries(
            world.tokenizer,
            n=CANARIES,
            n_controls=CONTROLS,
            family="high_ppl",
            repetitions=(copies,),
            seed=seed,
        )
        mixed, manifest = inject(
            rows, canaries, seed=seed, include_prob=1.0, tokenizer=world.tokenizer
        )
        return cls(mixed["text"], out, manifest, others, own)

    def secrets(self, *, included: bool) -> list[str]:
        """memaudit's canaries, or its controls, as they stand in the text."""
        from memaudit_beside.records import record

        canaries = self.manifest["canaries"]
        return [record(one["secret"]) for one in canaries if one["included"] is included]


@dataclass
class Watched:
    """A training that both watched.

    Attributes:
        model: trained.
        leakage: of Vestige.
        report: of memaudit.
        seconds: that each of them took, and the rest of the training.
    """

    model: Any
    leakage: LeakageCallback
    report: Mapping[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)


def watched(
    world: World,
    planted: Planted,
    seed: int,
    *,
    ref: Any = None,
    kind: Callable[..., Trainer] = Trainer,
    **settings: Any,
) -> Watched:
    """Train once, with both callbacks in the one trainer.

    Args:
        world: whose base is trained.
        planted: what on.
        seed: of the training.
        ref: memaudit's reference; None: the base.
        kind: of trainer.
        settings: of its own.
    """
    from memaudit import MemorizationAuditCallback

    trainer = world.trainer(
        copy.deepcopy(world.base), planted.texts, seed=seed, kind=kind, **settings
    )
    leakage = LeakageCallback(planted.place, trainer, seed=seed)
    trainer.add_callback(leakage)
    theirs = MemorizationAuditCallback(
        trainer=trainer,
        manifest=dict(planted.manifest),
        ref=copy.deepcopy(world.base) if ref is None else ref,
        real_sample=0,
    )
    trainer.add_callback(theirs)
    seconds = {"vestige": _timed(leakage), "memaudit": _timed(theirs)}
    began = time.perf_counter()
    with quiet():
        trainer.train()
    whole = time.perf_counter() - began
    spent = {name: sum(of) for name, of in seconds.items()}
    spent["training"] = whole - sum(spent.values())
    return Watched(trainer.model, leakage, theirs.report or {}, spent)


def _timed(callback: Any) -> list[float]:
    """Seconds of each call from now on; the methods stay the callback's own."""
    spent: list[float] = []

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **given: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **given)
            finally:
                spent.append(time.perf_counter() - began)

        return timed

    for event in EVENTS:
        setattr(callback, event, wrap(getattr(callback, event)))
    return spent


def beginnings(file: Path) -> list[str]:
    """Beginnings of a file's lines, of 12 to 30 words."""
    lines = [
        line.split() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    lengths = np.random.default_rng(0).integers(*WORDS, size=len(lines))
    found = {" ".join(words[:n]) for words, n in zip(lines, lengths, strict=True) if len(words) > n}
    return sorted(found)


def _ends(tokenizer: Any) -> dict[str, int]:
    end = tokenizer.eos_token_id
    return {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
