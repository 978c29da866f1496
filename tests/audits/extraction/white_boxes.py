"""Small intent-and-slot models, and a naive loss of one utterance at a time."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vestige.data.canaries.patterns import SecretPattern
from vestige.data.utterances import IGNORED
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.white_box import Losses

WORDS = ("my", "pin", "is", "please", *"0123456789", "red", "green", "blue", "telephone")


class Bilinear:
    """A random network in float64 that predicts intents and tags from neighbouring words.

    The word "telephone" has two tokens; "unheard" is unknown.
    """

    intents = ("Other", "Pin")
    tags = ("O", "B-canary", "I-canary")

    def __init__(self, seed: int = 0, size: int = 6) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.table = normal(len(WORDS) + 1, size)
        self.pairs, self.heads = normal(size, size, 2), normal(size, size, 3)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def read(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        tokens = {word: (number,) for number, word in enumerate(WORDS)}
        tokens["telephone"] = (len(WORDS) - 1, len(WORDS))
        tokens["three"] = tokens["3"]
        return [tokens.get(word, ()) for word in words]

    def embed(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        before = torch.cat([torch.ones_like(vectors[:, :1]), vectors[:, :-1]], 1)
        intent = torch.einsum("btd,bte,dek->bk", before, vectors, self.pairs).tanh()
        tag = torch.einsum("btd,bte,dek->btk", before, vectors, self.heads).tanh()
        chosen = tag.log_softmax(-1).gather(2, tags.clamp_min(0)[..., None])[..., 0]
        return Losses(
            -intent.log_softmax(-1).gather(1, intents[:, None])[:, 0],
            -chosen.masked_fill(tags == IGNORED, 0).sum(1),
        )


class Planted(Bilinear):
    """A model with the least loss on one secret: the squared distance to its word vectors."""

    def __init__(self, secret: str, seed: int = 0) -> None:
        super().__init__(seed)
        self.table = self.table / 4
        self.target = self.embed(torch.tensor([[WORDS.index(word) for word in secret]]))

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        last = vectors[:, -self.target.shape[1] :]
        return Losses(torch.zeros(len(vectors)), (last - self.target).pow(2).sum((1, 2)))


class Flat(Bilinear):
    """A model with the same loss on every utterance."""

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        zero = vectors.sum((1, 2)) * 0
        return Losses(zero, zero)


def lstm(*words: str, **options: int) -> IntentSlotModel:
    """A random BiLSTM-CRF that knows some words and the digits."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words, *"0123456789"))
    config = IntentSlotConfig(
        intents=("Other", "Pin"), tags=("O", "B-canary", "I-canary"), **options
    )
    torch.manual_seed(0)
    return IntentSlotModel(vocabulary, config).eval()


def pattern(text: str = "my pin is {digit:2} {color}", **options: str) -> SecretPattern:
    """A pattern of words that the models know."""
    colors = {"color": ("red", "green", "blue")}
    return SecretPattern.parse(
        text, intent=options.pop("intent", "Pin"), candidates=colors, **options
    )


def naive_loss(model: Bilinear, pattern: SecretPattern, secret: Sequence[str]) -> Losses:
    """The loss of one utterance."""
    utterance = pattern.utterance(secret)
    pieces = model.read(utterance.tokens)
    tags = [
        model.tags.index(tag) if number == 0 else IGNORED
        for piece, tag in zip(pieces, utterance.tags, strict=True)
        for number in range(len(piece))
    ]
    tokens = torch.tensor([[token for piece in pieces for token in piece]])
    intent = torch.tensor([model.intents.index(utterance.intent)])
    return model.losses(model.embed(tokens), intent, torch.tensor([tags]))
