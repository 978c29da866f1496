"""Small trainings with the callbacks of memaudit and Vestige, for `memaudit_comparison.py`."""

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
    "memaudit is not installed. Run `pip install --no-deps memaudit==0.2.0`; its dependencies are "
    "those of Vestige."
)
CANARIES, CONTROLS, ROWS = 16, 100, 200
"""Planted canaries of each tool, memaudit's controls (it refuses fewer), private rows."""
VOCABULARY, LONGEST, EPOCHS, RATE, BATCH = 1000, 128, 3, 2e-3, 16


@dataclass(frozen=True)
class World:
    """A base of public text, its tokenizer, private sentences, and sentences of another source."""

    base: Any
    tokenizer: Any
    private: Sequence[str]
    other_source: Sequence[str]

    def sample(self, seed: int) -> tuple[list[str], list[str]]:
        """(private rows of a training, as many others)."""
        order = np.random.default_rng(seed).permutation(len(self.private))[: 2 * ROWS]
        texts = [self.private[index] for index in order]
        return texts[: len(texts) // 2], texts[len(texts) // 2 :]

    def model(self, network: Any) -> HuggingFaceLanguageModel:
        """A network as a model of Vestige."""
        return HuggingFaceLanguageModel(network, SubwordVocabulary(self.tokenizer)).eval()

    def encoded(self, texts: Sequence[str]) -> Any:
        """Rows for `Trainer`, with their texts for memaudit."""
        from datasets import Dataset

        end, options = self.tokenizer.eos_token, {"truncation": True, "max_length": LONGEST}
        ids = [self.tokenizer(text + end, **options)["input_ids"] for text in texts]
        return Dataset.from_dict({"input_ids": ids, "text": list(texts)})

    def trainer(
        self, network: Any, data: Any, *, seed: int, epochs: float = EPOCHS, rate: float = RATE,
        trainer_class: Callable[..., Any] | None = None, **settings: Any,
    ) -> Any:  # fmt: skip
        """A trainer with further arguments `settings`."""
        from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

        arguments = TrainingArguments(
            tempfile.mkdtemp(), num_train_epochs=epochs, per_device_train_batch_size=BATCH,
            learning_rate=rate, seed=seed, report_to="none", save_strategy="no",
            logging_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        collator = DataCollatorForLanguageModeling(self.tokenizer, mlm=False)
        settings = {"data_collator": collator, "processing_class": self.tokenizer, **settings}
        return (trainer_class or Trainer)(network, arguments, train_dataset=data, **settings)

    def trained(self, texts: Sequence[str], seed: int) -> Any:
        """A full fine-tune of the base."""
        network = copy.deepcopy(self.base)
        with quiet():
            self.trainer(network, self.encoded(texts), seed=seed).train()
        return network.eval()


@cache
def trained_world(quick: bool, *texts: tuple[str, ...]) -> World:
    """Train the base on public text."""
    public, private, other_source = texts
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(public), size=VOCABULARY)
    vocabulary.tokenizer.pad_token = vocabulary.tokenizer.eos_token
    pad = {"pad_token_id": vocabulary.eos_id}
    network = gpt2(vocabulary, positions=2 * LONGEST, **pad).network
    world = World(network, vocabulary.tokenizer, private, other_source)
    with quiet():
        data = world.encoded(public)
        world.trainer(network, data, seed=0, epochs=1 if quick else 5).train()
    return world


def world_of(run: Run) -> World:
    """The world of WikiText-2, with film lines as the other source."""
    if find_spec("memaudit") is None:
        print(MISSING, file=sys.stderr)
        raise SystemExit(2)
    logging.getLogger("memaudit").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    files = ("wikitext2/wiki.valid.tokens", "wikitext2/wiki.test.tokens",
             "cornell_movie/tf_chatbot.test.dec")  # fmt: skip
    return trained_world(run.quick, *(beginnings(lines(run, name)) for name in files))


def beginnings(texts: Sequence[str]) -> tuple[str, ...]:
    """Distinct beginnings of 12 to 30 words."""
    lengths = np.random.default_rng(0).integers(12, 30, size=len(texts))
    words = [text.split() for text in texts]
    return tuple(
        sorted({" ".join(w[:n]) for w, n in zip(words, lengths, strict=True) if len(w) > n})
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard what is printed."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@dataclass(frozen=True)
class Planted:
    """Private rows with the canaries of both tools.

    Attributes:
        texts: to train on.
        folder: of Vestige's manifest.
        manifest: of memaudit.
        private: the private rows.
        others: rows of the same kind that are not trained on.
    """

    texts: Sequence[str]
    folder: Path
    manifest: Mapping[str, Any]
    private: Sequence[str]
    others: Sequence[str]

    @classmethod
    def of(cls, world: World, seed: int, copies: int, more: Sequence[str] = ()) -> "Planted":
        """Sample rows, and plant canaries among them and `more` texts, `copies` of each."""
        from datasets import Dataset
        from memaudit import generate_canaries, inject

        from vestige.integrations.planting import plant

        private, others = world.sample(seed)
        folder = Path(tempfile.mkdtemp()) / "canaries"
        data = Dataset.from_dict({"text": [*private, *more]})
        rows = plant(data, out=folder, pattern=["random"] * CANARIES, copies=copies, seed=seed)
        canaries = generate_canaries(
            world.tokenizer, n=CANARIES, n_controls=CONTROLS, family="high_ppl",
            repetitions=(copies,), seed=seed,
        )  # fmt: skip
        options = {"seed": seed, "include_prob": 1.0, "tokenizer": world.tokenizer}
        mixed, manifest = inject(rows, canaries, **options)
        return cls(mixed["text"], folder, manifest, private, others)

    def records(self, *, included: bool) -> list[str]:
        """memaudit's canaries, or its controls, with the prefix that they have in the text."""
        from memaudit.injection import TEXT_PREFIX

        canaries = [c for c in self.manifest["canaries"] if c["included"] is included]
        return [f"{TEXT_PREFIX}{canary['secret']}" for canary in canaries]


def train_with_both(
    world: World, planted: Planted, seed: int, ref: Any = None, **settings: Any
) -> tuple[Any, Any, Any]:
    """(the network, Vestige's callback, memaudit's callback) of a training with both."""
    from memaudit import MemorizationAuditCallback

    from vestige.integrations.leakage_callback import LeakageCallback

    rows = world.encoded(planted.texts)
    trainer = world.trainer(copy.deepcopy(world.base), rows, seed=seed, **settings)
    ours = LeakageCallback(planted.folder, trainer, seed=seed)
    trainer.add_callback(ours)
    theirs = MemorizationAuditCallback(
        trainer=trainer, manifest=dict(planted.manifest), real_sample=0,
        ref=copy.deepcopy(world.base) if ref is None else ref,
    )  # fmt: skip
    trainer.add_callback(theirs)
    with quiet():
        trainer.train()
    return trainer.model, ours, theirs
