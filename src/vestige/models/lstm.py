"""The recurrent language model of the update papers: embedding, LSTM, linear head.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", CCS, arXiv:1912.07942, section 3.2, which follows Zaremba et al. (2014),
"Recurrent Neural Network Regularization", arXiv:1409.2329.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from vestige.data.vocabulary import Vocabulary
from vestige.models.recurrent_network import Layers, RecurrentConfig, RecurrentLanguageModel


@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """The shape of an LSTM language model; see `RecurrentConfig`."""


class LSTMLanguageModel(RecurrentLanguageModel):
    """Embedding, stacked LSTM and linear head, with dropout on input and output.

    Args:
        vocabulary: of the token ids.
        config: sizes and dropout.

    Attributes:
        embedding: (v, embedding_size) token vectors.
        lstm: the recurrent layers, batch first.
        head: hidden_size -> v.
    """

    architecture: ClassVar[str] = "lstm"
    kind: ClassVar[type[Layers]] = nn.LSTM
    lstm: nn.LSTM

    def __init__(self, vocabulary: Vocabulary, config: LSTMConfig | None = None) -> None:
        super().__init__(vocabulary, config or LSTMConfig())
