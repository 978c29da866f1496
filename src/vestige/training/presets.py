"""Presets: architectures and trainings of the papers on updates and users, and a small one.

Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 3.1, gives the architectures: Penn
Treebank follows the small configuration of Zaremba et al. (2014), arXiv:1409.2329.

Differs from the paper: it states no optimizer or epochs beyond those of Zaremba et al. They divide
the loss by rows, we by rows and tokens, so their rate of 1 and norm of 5 over 20 tokens are 20 and
0.25 here. We halve the rate after 3 epochs instead of 4, to finish in 6. The other trainings are
ours. The paper's transformer uses the code of BERT; ours is a causal one of the same shape.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, appendix B: the three tasks of the audit of users. The paper uses dropout of 0.5
in "all hidden layers"; we apply it to the outputs of encoder, decoder and attention, not to
embeddings. The paper reads whole texts; we read up to `sequence_length` tokens at a time.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vestige import _validate
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.config import TrainingConfig

Shape = LSTMConfig | GRUConfig | TransformerConfig
"""Configuration of one of our language models."""
AnyShape = TypeVar("AnyShape", bound=Shape | Seq2SeqConfig)


@dataclass(frozen=True, kw_only=True)
class Preset(Generic[AnyShape]):
    """An architecture and its training.

    Attributes:
        model: the architecture's configuration.
        training: with seed 0; `dataclasses.replace` changes it.
        vocabulary_size: number of words in the paper, for sources and targets; None: all.
    """

    model: AnyShape
    training: TrainingConfig
    vocabulary_size: int | None


_COSINE: dict[str, Any] = {"seed": 0, "epochs": 4, "schedule": "cosine"}

PRESETS: dict[str, Preset[Shape]] = {
    "ptb-lstm": Preset(
        model=LSTMConfig(layers=2, embedding_size=200, hidden_size=200),
        training=TrainingConfig(
            seed=0,
            epochs=6,
            batch_size=20,
            sequence_length=20,
            optimizer="sgd",
            learning_rate=20.0,
            schedule="step",
            decay=0.5,
            decay_after=3,
            max_grad_norm=0.25,
        ),
        vocabulary_size=10_000,
    ),
    "reddit-lstm": Preset(
        model=LSTMConfig(
            layers=1, embedding_size=160, hidden_size=512, dropout_in=0.1, dropout_out=0.1
        ),
        training=TrainingConfig(batch_size=64, **_COSINE),
        vocabulary_size=10_000,
    ),
    "reddit-transformer": Preset(
        model=TransformerConfig(layers=4, heads=6, hidden_size=192),
        training=TrainingConfig(
            batch_size=32, sequence_length=64, warmup_steps=200, max_grad_norm=1.0, **_COSINE
        ),
        vocabulary_size=10_000,
    ),
    "wikitext-lstm": Preset(
        model=LSTMConfig(
            layers=2, embedding_size=512, hidden_size=512, dropout_in=0.1, dropout_out=0.1
        ),
        training=TrainingConfig(batch_size=64, **_COSINE),
        vocabulary_size=20_000,
    ),
    "demo": Preset(
        model=LSTMConfig(layers=1, embedding_size=128, hidden_size=128),
        training=TrainingConfig(sequence_length=20, learning_rate=4e-3, **_COSINE),
        vocabulary_size=5_000,
    ),
    "next-word": Preset(
        model=LSTMConfig(layers=1, embedding_size=128, hidden_size=128, dropout_out=0.5),
        training=TrainingConfig(
            seed=0, epochs=30, batch_size=35, sequence_length=64, batching="documents"
        ),
        vocabulary_size=5_000,
    ),
}


_PAIRS = TrainingConfig(seed=0, epochs=30, batch_size=20, sequence_length=100, batching="documents")
PAIR_PRESETS: dict[str, Preset[Seq2SeqConfig]] = {
    "translation": Preset(
        model=Seq2SeqConfig(attention=True), training=_PAIRS, vocabulary_size=5_000
    ),
    "dialogue": Preset(
        model=Seq2SeqConfig(attention=False), training=_PAIRS, vocabulary_size=5_000
    ),
}


def preset(name: str) -> Preset[Shape]:
    """The preset of a name; ValueError lists the names."""
    _validate.one_of(tuple(PRESETS), preset=name)
    return PRESETS[name]


def preset_of(task: str) -> Preset[Any]:
    """The preset of the task "next-word", "translation" or "dialogue"."""
    if task == "next-word":
        return PRESETS[task]
    _validate.one_of(tuple(PAIR_PRESETS), task=task)
    return PAIR_PRESETS[task]


def gentle(model: LanguageModel, *, adapter: bool = False) -> TrainingConfig:
    """A short training that continues or adapts a model without overwriting its knowledge."""
    if not isinstance(model, HuggingFaceLanguageModel):
        return TrainingConfig(seed=0, epochs=3)
    return TrainingConfig(
        seed=0,
        epochs=3,
        batch_size=8,
        sequence_length=min(128, model.longest or 128),
        learning_rate=1e-3 if model.adapted or adapter else 5e-5,
        schedule="cosine",
        max_grad_norm=1.0,
    )
