"""Intent-and-slot network: bi-LSTM, intent classifier and CRF tagger.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 4.1: word vectors, two bi-LSTM layers, a softmax over intents and a linear-chain CRF over
tags; training minimises the sum of both losses. With characters (section 6; Ma and Hovy 2016,
arXiv:1603.01354, section 2.1), a convolution over the letters of a word is added to its vector.

Differs from the paper: it gives neither sizes nor the input of the intent classifier. Here that is
the last state of each direction. Rows of a batch have one length, so nothing is masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool1d, relu

from vestige import _validate
from vestige.data.utterances import EncodedUtterances, Labels, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.crf import LinearChain
from vestige.models.white_box import IntentSlotNetwork, Losses

LONGEST_WORD = 20
"""Letters of a word that the convolution reads."""


@dataclass(frozen=True, kw_only=True)
class IntentSlotConfig:
    """The shape of an intent-and-slot network.

    Attributes:
        intents, tags: names, in the order of their ids.
        hidden_size: of each direction of each layer.
        input_dropout: dropout of the words' vectors (the paper's D: 0.2).
        hidden_dropout: dropout of each layer's output (the paper's D: 0.1).
        char_filters: filters of the convolution over letters; 0 for none (the paper's CE).
        frozen_embeddings: do not train the words' vectors.
    """

    intents: tuple[str, ...]
    tags: tuple[str, ...]
    embedding_size: int = 50
    hidden_size: int = 64
    layers: int = 2
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0
    char_filters: int = 0
    char_size: int = 25
    frozen_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in ("intents", "tags"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON gives lists
        _validate.all_different(intents=self.intents, tags=self.tags)
        for name in ("embedding_size", "hidden_size", "char_size"):
            _validate.whole(1, WIDEST, **{name: getattr(self, name)})
        _validate.whole(1, MOST_LAYERS, layers=self.layers)
        _validate.whole(0, WIDEST, char_filters=self.char_filters)
        _validate.fraction(input_dropout=self.input_dropout, hidden_dropout=self.hidden_dropout)


class IntentSlotModel(IntentSlotNetwork):
    """A bi-LSTM with an intent head and a CRF for the tags; a `WhiteBox`.

    Args:
        vectors: float (v, embedding_size) initial vectors of the words; None: random.
    """

    architecture: ClassVar[str] = "intent-slot"
    vocabulary: WordVocabulary
    config: IntentSlotConfig

    def __init__(
        self, vocabulary: WordVocabulary, config: IntentSlotConfig, vectors: Tensor | None = None
    ) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config
        self.intents, self.tags = config.intents, config.tags
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_size)
        if vectors is not None:
            self.embedding.weight = nn.Parameter(vectors.clone())
        self.embedding.weight.requires_grad_(not config.frozen_embeddings)
        self.letters = Letters(vocabulary, config) if config.char_filters else None
        width = config.embedding_size + config.char_filters
        self.dropout = nn.Dropout(config.input_dropout)
        self.hidden_dropout = nn.Dropout(config.hidden_dropout)
        self.lstm = nn.LSTM(
            width,
            config.hidden_size,
            config.layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.hidden_dropout if config.layers > 1 else 0.0,
        )
        self.intent_head = nn.Linear(2 * config.hidden_size, len(config.intents))
        self.tag_head = nn.Linear(2 * config.hidden_size, len(config.tags))
        self.crf = LinearChain(len(config.tags))

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def encode(self, utterances: Utterances) -> EncodedUtterances:
        """Utterances as ids; a word outside the vocabulary is `<unk>`."""
        words = self.vocabulary.encode_batch([utterance.text for utterance in utterances])
        tags = [utterance.tags for utterance in utterances]
        return EncodedUtterances.of(
            words, tags, utterances.intents, Labels(self.intents, self.tags)
        )

    def read(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        ids = [self.vocabulary.encode(word) for word in words]
        return [() if word == [self.vocabulary.unk_id] else tuple(word) for word in ids]

    def embed(self, tokens: Tensor) -> Tensor:
        """The vectors (b, t, d) of tokens (b, t), with those of their letters."""
        vectors: Tensor = self.embedding(tokens)
        if self.letters is None:
            return vectors
        return torch.cat([vectors, self.letters(tokens)], -1)

    def scores(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (b, i) of the intents and emissions (b, t, k) of the tags."""
        hidden, _ = self.lstm(self.dropout(vectors))
        hidden = self.hidden_dropout(hidden)
        size = self.config.hidden_size
        ends = torch.cat([hidden[:, -1, :size], hidden[:, 0, size:]], -1)
        return self.intent_head(ends), self.tag_head(hidden)

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        logits, emissions = self.scores(vectors)
        return Losses(
            cross_entropy(logits, intents, reduction="none"), self.crf.loss(emissions, tags)
        )

    @torch.no_grad()
    def predict(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits, emissions = self.scores(self.embed(tokens))
        return logits.argmax(1), self.crf.best(emissions)


class Letters(nn.Module):
    """Character convolution of width 3 with max-pooling over a word; `<unk>` has no letters."""

    table: Tensor

    def __init__(self, vocabulary: WordVocabulary, config: IntentSlotConfig) -> None:
        super().__init__()
        letters = sorted(set("".join(vocabulary.words)))
        alphabet = {letter: id for id, letter in enumerate(letters, start=1)}
        table = torch.zeros(len(vocabulary), LONGEST_WORD, dtype=torch.int64)
        for row, word in enumerate(vocabulary.words):
            if row not in (vocabulary.unk_id, vocabulary.eos_id):
                ids = [alphabet[letter] for letter in word[:LONGEST_WORD]]
                table[row, : len(ids)] = torch.tensor(ids)
        self.register_buffer("table", table, persistent=False)
        self.embedding = nn.Embedding(len(alphabet) + 1, config.char_size, padding_idx=0)
        self.convolution = nn.Conv1d(config.char_size, config.char_filters, 3, padding=1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Letter vectors (b, t, f) of tokens (b, t); each word is computed once."""
        words, inverse = torch.unique(tokens, return_inverse=True)
        letters = self.embedding(self.table[words]).transpose(1, 2)
        features = relu(self.convolution(letters))
        pooled: Tensor = max_pool1d(features, LONGEST_WORD).squeeze(2)
        return pooled[inverse]
