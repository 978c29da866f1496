"""Intent-and-slot models from Hugging Face encoders: BERT, RoBERTa, DistilBERT, ModernBERT, ...

Chen, Zhuo and Wang (2019), "BERT for Joint Intent Classification and Slot Filling",
arXiv:1902.10909, section 3.2: the intent from the last hidden vector of the first token, each
word's tag from the vector of its first piece, with softmaxes that are trained together; without the
CRF that the paper also tests. Attacks differentiate by the vectors of pieces, so the encoder reads
input embeddings. [CLS] ... [SEP] are added here, positions by the encoder.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import safetensors
import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vestige import _validate
from vestige.data.files import Excerpt, Name, read_json
from vestige.data.subwords import SubwordVocabulary, read_tokenizer, special_tokens, word_pieces
from vestige.data.utterances import IGNORED, EncodedUtterances, Labels, Utterances
from vestige.errors import DataError, ModelError
from vestige.models.folders import HEADS, LABELS
from vestige.models.pretrained import read_pretrained
from vestige.models.white_box import IntentSlotNetwork, Losses

FORMAT = 1
REMEDY = (
    "Pass the folder of a whole encoder (config.json, *.safetensors, tokenizer.json), or a hub "
    "name that is online or downloaded."
)
SAVE_AGAIN = "Save the model again, or pass another one."


class IntentSlotEncoder(IntentSlotNetwork):
    """An encoder with an intent head and a token head; a `WhiteBox`.

    Args:
        encoder: of transformers; its parameters are not copied.
        vocabulary: its tokenizer.
        labels: intents and tags.
        dropout: of the hidden vectors, before the heads.

    Raises:
        ModelError: the tokenizer has more tokens than the encoder.
    """

    architecture: ClassVar[str] = "intent-slot-encoder"
    vocabulary: SubwordVocabulary
    encoder: nn.Module

    def __init__(
        self, encoder: nn.Module, vocabulary: SubwordVocabulary, labels: Labels, dropout: float
    ) -> None:
        super().__init__()
        _validate.fraction(dropout=dropout)
        _validate.all_different(intents=labels.intents, tags=labels.tags)
        self.encoder, self.vocabulary = encoder, vocabulary
        self.intents, self.tags = labels
        if getattr(encoder, "pooler", None) is not None:  # only for sentence pairs
            self.encoder.pooler = None  # type: ignore[assignment]
        embeddings = self._embedding.num_embeddings
        if len(vocabulary) > embeddings:
            raise ModelError(
                f"the tokenizer has {len(vocabulary)} tokens; the encoder knows {embeddings}",
                remedy="Pass the tokenizer that the encoder was trained with.",
            )
        self.dropout = nn.Dropout(dropout)
        width = int(self.settings.hidden_size)
        self.intent_head = nn.Linear(width, len(self.intents))
        self.tag_head = nn.Linear(width, len(self.tags))
        self._prefix, self._suffix = special_tokens(vocabulary)

    @property
    def settings(self) -> Any:
        return self.encoder.config

    @property
    def device(self) -> torch.device:
        return self.intent_head.weight.device

    @property
    def longest(self) -> int:
        """Most pieces of an utterance that the encoder reads."""
        limit = int(self.vocabulary.tokenizer.model_max_length)
        positions = getattr(self.settings, "max_position_embeddings", None) or limit
        # RoBERTa starts its positions after the one for padding.
        padding = getattr(getattr(self.encoder, "embeddings", None), "padding_idx", None)
        skipped = 0 if padding is None else padding + 1
        return min(positions - skipped, limit) - len(self._prefix) - len(self._suffix)

    def encode(self, utterances: Utterances) -> EncodedUtterances:
        """Utterances as pieces; the first piece of a word has its tag, the others `None`.

        Raises:
            DataError: an utterance has more pieces than the encoder reads.
        """
        rows = list(utterances)
        words = word_pieces(self.vocabulary, [utterance.tokens for utterance in rows])
        for number, pieces in enumerate(words, 1):
            if sum(map(len, pieces)) > self.longest:
                raise DataError(
                    f"utterance {number} has {sum(map(len, pieces))} pieces; the encoder reads at "
                    f"most {self.longest}",
                    remedy="Leave the utterance out, or pass an encoder with a longer context.",
                )
        unknown = self._unknown
        tokens = [[id for word in pieces for id in word or [unknown]] for pieces in words]
        tags: list[list[str | None]] = [
            [
                label
                for tag, word in zip(utterance.tags, pieces, strict=True)
                for label in [tag, *[None] * (len(word) - 1)]
            ]
            for utterance, pieces in zip(rows, words, strict=True)
        ]
        intents = [utterance.intent for utterance in rows]
        return EncodedUtterances.of(tokens, tags, intents, Labels(self.intents, self.tags))

    def read(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        unknown = self._unknown
        (pieces,) = word_pieces(self.vocabulary, [words])
        return [() if unknown in word else tuple(word) for word in pieces]

    def embed(self, tokens: Tensor) -> Tensor:
        """The vectors (b, t, d) of pieces (b, t), without their positions."""
        vectors: Tensor = self._embedding(tokens)
        return vectors

    def scores(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (b, i) of the intents and (b, t, k) of the tags.

        Raises:
            ValueError: t is larger than `longest`.
        """
        rows, t, _ = vectors.shape
        if t > self.longest:
            raise ValueError(f"an utterance must have at most {self.longest} pieces, got {t}")
        special_ids = torch.tensor([*self._prefix, *self._suffix], device=vectors.device)
        first = len(self._prefix)
        special = self.embed(special_ids).expand(rows, -1, -1)
        hidden = self.encoder(
            inputs_embeds=torch.cat([special[:, :first], vectors, special[:, first:]], 1),
            attention_mask=vectors.new_ones(rows, len(special_ids) + t, dtype=torch.int64),
        ).last_hidden_state
        hidden = self.dropout(hidden)
        return self.intent_head(hidden[:, 0]), self.tag_head(hidden[:, first : first + t])

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        logits, tag_logits = self.scores(vectors)
        tag_losses = cross_entropy(
            tag_logits.transpose(1, 2), tags, ignore_index=IGNORED, reduction="none"
        ).sum(1)
        return Losses(cross_entropy(logits, intents, reduction="none"), tag_losses)

    @torch.no_grad()
    def predict(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits, tag_logits = self.scores(self.embed(tokens))
        return logits.argmax(1), tag_logits.argmax(2)

    def write(self, folder: Path) -> None:
        """Write encoder, tokenizer, heads and labels, for `load_encoder`."""
        encoder: Any = self.encoder
        encoder.save_pretrained(folder)
        self.vocabulary.save(folder)
        weights = self.state_dict()
        heads = {name: weights[name] for name in weights if not name.startswith("encoder.")}
        save_file(heads, folder / HEADS)
        labels = {"intents": self.intents, "tags": self.tags}
        description = {"format": FORMAT, **labels, "dropout": self.dropout.p}
        (folder / LABELS).write_text(json.dumps(description, indent=2) + "\n", "utf-8")

    @property
    def _embedding(self) -> Any:
        return self.encoder.get_input_embeddings()  # type: ignore[operator]

    @property
    def _unknown(self) -> int:
        """Token for a word for which the tokenizer returns no piece."""
        return self.vocabulary.eos_id if (id := self.vocabulary.unk_id) is None else id


def new_encoder(
    source: str | Path,
    intents: Sequence[str],
    tags: Sequence[str],
    *,
    seed: int,
    dropout: float = 0.1,
) -> IntentSlotEncoder:
    """An encoder with new heads.

    Args:
        source: an encoder's folder or hub name.
        intents, tags: the labels.
        seed: of the initial weights of the heads.
        dropout: of the hidden vectors, before the heads.

    Raises:
        ModelError: it is incomplete or not an encoder, such as a causal language model.
        DataError: its tokenizer cannot be read.
    """
    encoder, vocabulary = _encoder(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        labels = Labels(tuple(intents), tuple(tags))
        return IntentSlotEncoder(encoder, vocabulary, labels, dropout).eval()


def _encoder(source: str | Path) -> tuple[nn.Module, SubwordVocabulary]:
    from transformers import AutoModel

    with torch.random.fork_rng(devices=[]):  # transformers initialises a missing pooler
        network, address = read_pretrained(
            source, AutoModel, _config_problem, REMEDY, optional=("pooler.",)
        )
    tokenizer = read_tokenizer(address)
    if tokenizer.eos_token is None:
        tokenizer.eos_token = tokenizer.sep_token  # BERT's end of a text
    return network, SubwordVocabulary(tokenizer)


def _config_problem(config: Any) -> str | None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder, not an encoder"
    if config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES or getattr(
        config, "is_decoder", False
    ):
        return (
            f"{config.model_type} is not an encoder: an encoder reads each word with the words "
            "after it"
        )
    return None


class _LabelSets(Excerpt):
    """Content of the file of labels."""

    format: int
    intents: Annotated[list[Name], Field(min_length=1, max_length=10_000)]
    tags: Annotated[list[Name], Field(min_length=1, max_length=10_000)]
    dropout: Annotated[float, Field(ge=0, lt=1)]


def load_encoder(folder: Path) -> IntentSlotEncoder:
    """Read a folder of `IntentSlotEncoder.write`, in evaluation mode.

    Raises:
        ModelError: a file is missing or damaged, or labels and weights do not fit.
    """
    file = folder / LABELS
    saved = read_json(file, _LabelSets, error=ModelError, remedy=SAVE_AGAIN)
    if saved.format != FORMAT:
        raise ModelError(f"{file} has format {saved.format!r}, not {FORMAT}", remedy=SAVE_AGAIN)
    labels = Labels(tuple(saved.intents), tuple(saved.tags))
    try:
        encoder, vocabulary = _encoder(folder)
        with torch.random.fork_rng(devices=[]):
            model = IntentSlotEncoder(encoder, vocabulary, labels, saved.dropout)
        heads = load_file(folder / HEADS)
        for name in ("intent_head", "tag_head"):
            weights = {
                key.partition(".")[2]: tensor
                for key, tensor in heads.items()
                if key.startswith(name)
            }
            model.get_submodule(name).load_state_dict(weights)
    except (OSError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise ModelError(
            f"{folder / HEADS} does not fit {LABELS}: {error}", remedy=SAVE_AGAIN
        ) from error
    return model.eval()
