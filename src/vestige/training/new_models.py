"""Models with new weights, on the CPU, from a seed.

The global random generators are restored. ValueError: the weights do not fit in memory.

Intent-and-slot models have details that Parikh et al. (2022), "Canary Extraction in Natural
Language Understanding Models", do not state. Words are in alphabetical order, so ids do not reveal
their frequency, and training texts with other counts give the same ids and initial weights.
Training does not change `<unk>`: its vector is the mean of all. On Snips (4,000 utterances, 8
epochs), compared with a random vector, this gains one point of test slot F1 if all vectors are
random, and nothing with GloVe. Vectors for the words of the test part then gain two points.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from vestige.data.utterances import Labels, Utterances
from vestige.data.vocabulary import EOS, UNK, Vocabulary, WordVocabulary
from vestige.data.word_vectors import WordVectors, read_word_vectors
from vestige.errors import DataError
from vestige.memory import require_room_for
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.protocols import LanguageModel, Network
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.transformer import CausalTransformer
from vestige.training.presets import Shape

AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def new_model(vocabulary: Vocabulary, config: Shape, *, seed: int) -> LanguageModel:
    """A language model."""

    def build() -> LanguageModel:
        if isinstance(config, LSTMConfig):
            return LSTMLanguageModel(vocabulary, config)
        if isinstance(config, GRUConfig):
            return GRULanguageModel(vocabulary, config)
        return CausalTransformer(vocabulary, config)

    return _seeded(build, seed)


def new_seq2seq(
    source_vocabulary: Vocabulary, vocabulary: Vocabulary, config: Seq2SeqConfig, *, seed: int
) -> Seq2SeqModel:
    """An encoder-decoder."""
    return _seeded(lambda: Seq2SeqModel(source_vocabulary, vocabulary, config), seed)


def _seeded(build: Callable[[], AnyNetwork], seed: int) -> AnyNetwork:
    require_room_for(build)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def new_intent_slot_model(
    utterances: Utterances,
    *,
    vectors: str | WordVectors | None = None,
    words: Iterable[str] = (),
    intents: Iterable[str] = (),
    tags: Iterable[str] = (),
    lowercase: bool = False,
    seed: int,
    **shape: Any,
) -> IntentSlotModel:
    """A model of intents and slots.

    Args:
        utterances: source of words and labels, such as training and validation.
        vectors: initial vectors of words, or a source for `read_word_vectors`; None: random. A word
            without a vector gets that of its lower case, otherwise a random one with the mean and
            spread of the others.
        words: additional words, such as `SecretManifest.words` or `with_vectors`.
        intents: additional labels, such as `SecretManifest.intents`.
        tags: likewise.
        lowercase: convert all words to lower case.
        seed: of the initial weights.
        **shape: settings of `IntentSlotConfig`; `vectors` decide `embedding_size`.

    Raises:
        ValueError: a setting is out of range, or embedding_size differs from that of the vectors.
        DataError: the vectors cannot be read, or no word has one.

    Example:
        >>> from vestige.data.utterances import Utterance
        >>> said = Utterance(("to", "york"), ("O", "B-city"), "Fly")
        >>> model = new_intent_slot_model(Utterances.of([said]), words=["leeds"], seed=0)
        >>> model.vocabulary.words, model.tags
        (('<unk>', '<eos>', 'leeds', 'to', 'york'), ('O', 'B-city', 'I-city'))
    """
    word_set = {word.lower() if lowercase else word for word in words_of(utterances).union(words)}
    vocabulary = WordVocabulary((UNK, EOS, *sorted(word_set - {UNK, EOS})), lowercase)
    labels = Labels.of(utterances, intents=intents, tags=tags)
    if vectors is not None:
        vectors = vectors_for(word_set, vectors) if isinstance(vectors, str) else vectors
        size = shape.setdefault("embedding_size", vectors.dim)
        if size != vectors.dim:
            raise ValueError(f"embedding_size must be {vectors.dim}, as vectors have, got {size}")
    config = IntentSlotConfig(**labels._asdict(), **shape)
    require_room_for(lambda: IntentSlotModel(vocabulary, config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if vectors is not None:
            return IntentSlotModel(vocabulary, config, _first_vectors(vocabulary, vectors))
        model = IntentSlotModel(vocabulary, config)
    embeddings = model.embedding.weight.detach()
    embeddings[vocabulary.unk_id] = embeddings.mean(0)
    return model


def words_of(*parts: Utterances) -> set[str]:
    """The different words of some utterances."""
    return {word for part in parts for utterance in part for word in utterance.tokens}


def vectors_for(words: Iterable[str], source: str) -> WordVectors:
    """Pretrained vectors of some words, or of their lower-case forms; see `read_word_vectors`."""
    forms = {form for word in words for form in (word, word.lower())}
    return read_word_vectors(source, words=forms)


def with_vectors(words: Iterable[str], vectors: WordVectors) -> set[str]:
    """Words that have a vector, as written or in lower case.

    With them a model can know words that are not in its training text, as a model with a whole
    vector file would, in less memory.

    Example:
        >>> import numpy as np
        >>> vectors = WordVectors(("york", "to"), np.zeros((2, 50), np.float32))
        >>> sorted(with_vectors(["York", "to", "Xyzzy"], vectors))
        ['York', 'to']
    """
    available = frozenset(vectors.words)
    return {word for word in words if word in available or word.lower() in available}


def _first_vectors(vocabulary: WordVocabulary, vectors: WordVectors) -> Tensor:
    """float32 (v, d), a row for each word of a vocabulary, random if it has no vector."""
    index_of = {word: index for index, word in enumerate(vectors.words)}
    indices = np.array(
        [index_of.get(word, index_of.get(word.lower(), -1)) for word in vocabulary.words]
    )
    rows = torch.from_numpy(np.flatnonzero(indices >= 0))
    if not len(rows):
        raise DataError(
            f"the vectors have none of the {len(vocabulary) - 2} words",
            remedy="Pass vectors for the language of the utterances.",
        )
    pretrained = torch.from_numpy(vectors.vectors[indices[indices >= 0]])
    spread = pretrained.std(0, correction=0)
    initial = torch.randn(len(vocabulary), vectors.dim) * spread + pretrained.mean(0)
    initial[rows] = pretrained
    initial[vocabulary.unk_id] = pretrained.mean(0)
    return initial
