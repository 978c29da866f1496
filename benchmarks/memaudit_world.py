"""Small trainings that memaudit and Vestige both watch, for `memaudit_comparison.py`."""

import contextlib
import copy
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from corpora import lines
from harness import Run
from networks import gpt2

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel

MISSING = (
    "memaudit is not installed, which these comparisons are made with. Install it with "
    "`pip install --no-deps memaudit==0.2.0`: what it needs, Vestige has."
)
CANARIES, CONTROLS, ROWS = 16, 100, 200
"""Planted canaries of each tool, memaudit's controls (fewer are refused), private rows."""
VOCABULARY, LONGEST, EPOCHS, RATE, BATCH = 1000, 128, 3, 2e-3, 16


@dataclass(frozen=True)
class World:
    """A base of public text, its tokenizer, private sentences, and sentences of another kind."""

    base: Any
    tokenizer: Any
    private: Sequence[str]
    elsewhere: Sequence[str]

    def drawn(self, seed: int) -> tuple[list[str], list[str]]:
        """(private rows of a training, as many others)."""
        order = np.random.default_rng(seed).permutation(len(self.private))[: 2 * ROWS]
        texts = [self.private[place] for place in order]
        return texts[: len(texts) // 2], texts[len(texts) // 2 :]

    def asked(self, network: Any) -> HuggingFaceLanguageModel:
        """A network as Vestige asks it."""
        return HuggingFaceLanguageModel(network, SubwordVocabulary(self.tokenizer)).eval()

    def encoded(self, texts: Sequence[str]) -> Any:
        """Rows for `Trainer`, which leaves their texts out; memaudit reads them."""
        from datasets import Dataset

        end = self.tokenizer.eos_token
        cut = {"truncation": True, "max_length": LONGEST}
        ids = [self.tokenizer(text + end, **cut)["input_ids"] for text in texts]
        return Dataset.from_dict({"input_ids": ids, "text": list(texts)})

    def trainer(
        self, network: Any, data: Any, *, seed: int, epochs: float = EPOCHS, rate: float = RATE,
        kind: Callable[..., Any] | None = None, **settings: Any,
    ) -> Any:  # fmt: skip
        """A trainer; `settings` are its own."""
        from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

        arguments = TrainingArguments(
            tempfile.mkdtemp(), num_train_epochs=epochs, per_device_train_batch_size=BATCH,
            learning_rate=rate, seed=seed, report_to="none", save_strategy="no",
            logging_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        collator = DataCollatorForLanguageModeling(self.tokenizer, mlm=False)
        given = {"data_collator": collator, "processing_class": self.tokenizer, **settings}
        return (kind or Trainer)(network, arguments, train_dataset=data, **given)

    def trained(self, texts: Sequence[str], seed: int) -> Any:
        """A full fine-tune of the base."""
        network = copy.deepcopy(self.base)
        with quiet():
            self.trainer(network, self.encoded(texts), seed=seed).train()
        return network.eval()


@cache
def made_world(quick: bool, *texts: tuple[str, ...]) -> World:
    """Train the base on public text."""
    public, private, elsewhere = texts
    words = SubwordVocabulary.train_bpe(Corpus.from_texts(public), size=VOCABULARY)
    words.tokenizer.pad_token = words.tokenizer.eos_token
    pad = {"pad_token_id": words.eos_id}
    network = gpt2(words, width=64, layers=2, heads=2, positions=2 * LONGEST, **pad).network
    world = World(network, words.tokenizer, private, elsewhere)
    with quiet():
        data = world.encoded(public)
        world.trainer(network, data, seed=0, epochs=1 if quick else 5).train()
    return world


def world_of(run: Run) -> World:
    """Of WikiText-2, and lines of films as another kind."""
    if find_spec("memaudit") is None:
        print(MISSING, file=sys.stderr)
        raise SystemExit(2)
    logging.getLogger("memaudit").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    files = ("wikitext2/wiki.valid.tokens", "wikitext2/wiki.test.tokens",
             "cornell_movie/tf_chatbot.test.dec")  # fmt: skip
    return made_world(run.quick, *(beginnings(lines(run, name)) for name in files))


def beginnings(texts: Sequence[str]) -> tuple[str, ...]:
    """Beginnings of 12 to 30 words."""
    lengths = np.random.default_rng(0).integers(12, 30, size=len(texts))
    words = [text.split() for text in texts]
    found = {" ".join(w[:n]) for w, n in zip(words, lengths, strict=True) if len(w) > n}
    return tuple(sorted(found))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what is printed meanwhile from the tables."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@dataclass(frozen=True)
class Planted:
    """Private rows with the canaries of both tools.

    Attributes:
        texts: to train on.
        place: of Vestige's manifest.
        manifest: of memaudit.
        own, others: the private rows, and rows of the same kind that are not trained on.
    """

    texts: Sequence[str]
    place: Path
    manifest: Mapping[str, Any]
    own: Sequence[str]
    others: Sequence[str]

    @classmethod
    def of(cls, world: World, seed: int, copies: int, more: Sequence[str] = ()) -> "Planted":
        """Draw rows and canaries, each so many times in the text, beside more texts."""
        from datasets import Dataset
        from memaudit import generate_canaries, inject

        from vestige.integrations.planting import plant

        own, others = world.drawn(seed)
        place = Path(tempfile.mkdtemp()) / "canaries"
        data = Dataset.from_dict({"text": [*own, *more]})
        kinds = ["random"] * CANARIES
        rows = plant(data, out=place, pattern=kinds, copies=copies, seed=seed)
        canaries = generate_canaries(
            world.tokenizer, n=CANARIES, n_controls=CONTROLS, family="high_ppl",
            repetitions=(copies,), seed=seed,
        )  # fmt: skip
        given = {"seed": seed, "include_prob": 1.0, "tokenizer": world.tokenizer}
        mixed, manifest = inject(rows, canaries, **given)
        return cls(mixed["text"], place, manifest, own, others)

    def records(self, *, included: bool) -> list[str]:
        """memaudit's canaries, or its controls, as they stand in the text."""
        from memaudit.injection import TEXT_PREFIX

        canaries = [one for one in self.manifest["canaries"] if one["included"] is included]
        return [f"{TEXT_PREFIX}{one['secret']}" for one in canaries]


def watched(
    world: World, planted: Planted, seed: int, data: Any = None, ref: Any = None, **settings: Any
) -> tuple[Any, Any, Any]:
    """(the network, Vestige's callback, memaudit's) of a training with both callbacks."""
    from memaudit import MemorizationAuditCallback

    from vestige.integrations.leakage_callback import LeakageCallback

    rows = world.encoded(planted.texts) if data is None else data
    trainer = world.trainer(copy.deepcopy(world.base), rows, seed=seed, **settings)
    ours = LeakageCallback(planted.place, trainer, seed=seed)
    trainer.add_callback(ours)
    theirs = MemorizationAuditCallback(
        trainer=trainer, manifest=dict(planted.manifest), real_sample=0,
        ref=copy.deepcopy(world.base) if ref is None else ref,
    )  # fmt: skip
    trainer.add_callback(theirs)
    with quiet():
        trainer.train()
    return trainer.model, ours, theirs
