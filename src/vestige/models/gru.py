"""The recurrent language model whose layers are gated recurrent units.

Cho et al. (2014), "Learning Phrase Representations using RNN Encoder-Decoder for Statistical
Machine Translation", arXiv:1406.1078, section 2.3. Song and Shmatikov (2019), "Auditing Data
Provenance in Text-Generation Models", KDD, arXiv:1811.00513, appendix B.2, use it for shadow
models of an LSTM of unknown shape.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from vestige.data.vocabulary import Vocabulary
from vestige.models.recurrent_network import Layers, RecurrentConfig, RecurrentLanguageModel


@dataclass(frozen=True)
class GRUConfig(RecurrentConfig):
    """The shape of a GRU language model; see `RecurrentConfig`."""


class GRULanguageModel(RecurrentLanguageModel):
    """Embedding, stacked GRU and linear head, with dropout on input and output.

    Args:
        vocabulary: of the token ids.
        config: sizes and dropout.

    Attributes:
        embedding: (v, embedding_size) token vectors.
        gru: the recurrent layers, batch first.
        head: hidden_size -> v.
    """

    architecture: ClassVar[str] = "gru"
    kind: ClassVar[type[Layers]] = nn.GRU
    gru: nn.GRU

    def __init__(self, vocabulary: Vocabulary, config: GRUConfig | None = None) -> None:
        super().__init__(vocabulary, config or GRUConfig())
