"""Which model `vestige train --task translation|dialogue` begins with, and how it is trained."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.cli.training_plan import Architecture, Tokenizer, borrow, learn_vocabulary

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.seq2seq import Seq2SeqModel
    from vestige.training.config import TrainingConfig
    from vestige.training.presets import PairPreset


@dataclass(frozen=True, kw_only=True)
class WantedPairs:
    """What was asked for; None where the preset decides.

    Attributes:
        task: "translation" or "dialogue".
        start: the model to continue.
        vocabulary: the model whose two vocabularies are taken.
        shape: sizes of the network by name.
        training: settings of `TrainingConfig` by name.
    """

    task: str
    start: str | None
    architecture: Architecture | None
    tokenizer: Tokenizer | None
    vocabulary: Path | None
    vocab_size: int | None
    seed: int
    device: str
    shape: dict[str, int | None] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ValueError where options contradict each other, before anything is read."""
        if self.architecture == "transformer":
            raise ValueError(
                f"--architecture must be lstm or gru with --task {self.task}, got transformer"
            )
        fresh_only = {
            "--architecture": self.architecture,
            "--tokenizer": self.tokenizer,
            "--vocabulary": self.vocabulary,
            "--vocab-size": self.vocab_size,
            **{f"--{name.replace('_', '-')}": size for name, size in self.shape.items()},
        }
        given = [option for option, value in fresh_only.items() if value is not None]
        if self.start is not None and given:
            raise ValueError(f"{given[0]} must not be given with --from, whose model has its own")
        borrowed = [option for option in given if option in ("--tokenizer", "--vocab-size")]
        if self.vocabulary is not None and borrowed:
            raise ValueError(
                f"{borrowed[0]} must not be given with --vocabulary, which has its own"
            )


def prepare(wanted: WantedPairs, corpus: "Corpus") -> "tuple[Seq2SeqModel, TrainingConfig]":
    """The model to train, on its device, and the configuration.

    Raises:
        ValueError: options contradict each other.
        VestigeError: model, vocabularies or sources cannot be had.
    """
    from vestige.models.checkpoints import load_seq2seq
    from vestige.models.protocols import choose_device
    from vestige.training.presets import pair_preset

    plan = pair_preset(wanted.task)
    settings = {name: value for name, value in wanted.training.items() if value is not None}
    config = replace(plan.training, seed=wanted.seed, **settings)
    if wanted.start is not None:
        return load_seq2seq(wanted.start, device=wanted.device), config
    where = choose_device(wanted.device)
    return _fresh(wanted, plan, corpus).to(where), config


def _fresh(wanted: WantedPairs, plan: "PairPreset", corpus: "Corpus") -> "Seq2SeqModel":
    from vestige.training.presets import new_seq2seq

    shape: dict[str, Any] = {name: n for name, n in wanted.shape.items() if n is not None}
    if "hidden_size" in shape:
        shape.setdefault("embedding_size", shape["hidden_size"])
    if wanted.architecture is not None:
        shape["cell"] = wanted.architecture
    config = replace(plan.model, **shape)
    return new_seq2seq(*_vocabularies(wanted, plan, corpus), config, seed=wanted.seed)


def _vocabularies(
    wanted: WantedPairs, plan: "PairPreset", corpus: "Corpus"
) -> "tuple[Vocabulary, Vocabulary]":
    """What sources and targets are read with."""
    from vestige.data.encoded_pairs import sources_of
    from vestige.models.checkpoints import SOURCE
    from vestige.models.folders import model_folder

    if wanted.vocabulary is not None:
        folder = model_folder(wanted.vocabulary)
        if folder.is_dir() and not (folder / SOURCE).is_dir():
            raise ValueError(
                "--vocabulary must be a model of --task translation or dialogue, which has one for "
                f"sources too, got {wanted.vocabulary}"
            )
        return borrow(folder / SOURCE), borrow(wanted.vocabulary)
    source, target = (
        learn_vocabulary(part, wanted.tokenizer, size=wanted.vocab_size, usual=plan.vocabulary_size)
        for part in (sources_of(corpus), corpus)
    )
    return source, target
