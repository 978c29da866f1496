"""The causal Transformer of the update papers: pre-norm blocks, learned positions.

Vaswani et al. (2017), "Attention Is All You Need", arXiv:1706.03762; its size here is that of
Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 3.2: 4 layers, 6 heads, hidden 192.

Differs from the paper: layer norms stand before each sublayer and not after it, so that
training needs no warm-up; positions are learned.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.vocabulary import Vocabulary
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.key_value_cache import KeysAndValues, all_rows
from vestige.models.protocols import BodyAndHead, LanguageModel, require_evaluation


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a causal Transformer.

    Attributes:
        layers: blocks of attention and feed-forward.
        heads: attention heads; they share hidden_size evenly.
        hidden_size: width of a token's vector throughout.
        feed_forward: width inside a feed-forward layer.
        max_length: tokens that it can read at most.
        dropout: probability of dropping a unit of the input and of each sublayer's output.
    """

    layers: int = 4
    heads: int = 6
    hidden_size: int = 192
    feed_forward: int = 768
    max_length: int = 256
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _validate.whole(1, MOST_LAYERS, layers=self.layers)
        for name in ("heads", "hidden_size", "feed_forward", "max_length"):
            _validate.whole(1, WIDEST, **{name: getattr(self, name)})
        _validate.fraction(dropout=self.dropout)
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size must be a multiple of heads, got {self.hidden_size} and {self.heads}"
            )


@dataclass(frozen=True)
class TransformerState:
    """Keys and values of n sequences in each layer, and (n, hidden_size) what the head reads."""

    cache: tuple[KeysAndValues, ...]
    hidden: Tensor

    @property
    def has_read(self) -> bool:
        return self.length > 0

    @property
    def length(self) -> int:
        """Tokens read."""
        return self.cache[0].length

    @property
    def nbytes(self) -> int:
        return self.hidden.nbytes + sum(layer.nbytes for layer in self.cache)

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, index: Tensor | slice) -> Self:
        if all_rows(index, len(self)):
            return self
        return type(self)(tuple(layer[index] for layer in self.cache), self.hidden[index])


class CausalTransformer(BodyAndHead, LanguageModel):
    """Token and position embeddings, blocks, a last norm and a linear head."""

    architecture: ClassVar[str] = "transformer"
    carries_state: ClassVar[bool] = False
    config: TransformerConfig

    def __init__(self, vocabulary: Vocabulary, config: TransformerConfig | None = None) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config or TransformerConfig()
        self.vocab_size, self.longest = len(vocabulary), self.config.max_length
        width = self.config.hidden_size
        self.embedding = nn.Embedding(self.vocab_size, width)
        self.positions = nn.Embedding(self.config.max_length, width)
        self.blocks = nn.ModuleList(Block(self.config) for _ in range(self.config.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, self.vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, tokens: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Logits (b, t, v) after each of the tokens (b, t), which begin at position 0."""
        return self.predict(self.body(tokens)[0]), None

    def body(self, tokens: Tensor, state: TransformerState | None = None) -> tuple[Tensor, None]:
        """Hidden vectors (b, t, hidden_size) after each token.

        Raises:
            ValueError: the text becomes longer than max_length.
        """
        return self._read(tokens, state)[0], None

    def unread(self, n: int) -> TransformerState:
        shape, weight = self.config, self.head.weight
        empty = weight.new_empty(n, shape.heads, 0, shape.hidden_size // shape.heads)
        cache = (KeysAndValues.of(empty, empty),) * shape.layers
        return TransformerState(cache, weight.new_empty(n, shape.hidden_size))

    @torch.no_grad()
    def read(self, state: TransformerState, tokens: Tensor) -> TransformerState:
        """The n states after each has read t more tokens, (n, t), in one forward pass.

        Raises:
            ValueError: the text becomes longer than max_length, or dropout is on.
        """
        require_evaluation(self, drops=self.config.dropout)
        if not tokens.shape[1]:
            return state
        hidden, cache = self._read(tokens, state)
        return TransformerState(cache, hidden[:, -1])

    def _read(
        self, tokens: Tensor, state: TransformerState | None
    ) -> tuple[Tensor, tuple[KeysAndValues, ...]]:
        before = state.length if state is not None else 0
        end = before + tokens.shape[1]
        if end > self.config.max_length:
            raise ValueError(
                f"a text must have at most max_length = {self.config.max_length} tokens "
                f"(its beginning counts as one), got {end}"
            )
        position = torch.arange(before, end, device=tokens.device)
        # Every row has positions of its own, so that gradients can be told apart.
        hidden = self.embedding(tokens) + self.positions(position.repeat(len(tokens), 1))
        hidden = functional.dropout(hidden, self.config.dropout, self.training)
        cache = []
        for layer, block in enumerate(self.blocks):
            hidden, read = block(hidden, state.cache[layer] if state is not None else None)
            cache.append(read)
        return self.norm(hidden), tuple(cache)


class Block(nn.Module):
    """Attention and feed-forward layer, each with a residual connection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.dropout = config.heads, config.dropout
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.expand = nn.Linear(width, config.feed_forward)
        self.contract = nn.Linear(config.feed_forward, width)

    def forward(self, hidden: Tensor, before: KeysAndValues | None) -> tuple[Tensor, KeysAndValues]:
        """Block output (n, t, width), and all keys and values so far."""
        n, t, width = hidden.shape
        mixed = self.queries_keys_values(self.attention_norm(hidden))
        # (n, t, 3 * width) -> three of (n, heads, t, head_size)
        queries, keys, values = mixed.view(n, t, 3, self.heads, width // self.heads).permute(
            2, 0, 3, 1, 4
        )
        read = KeysAndValues.of(keys, values)
        if before is not None:
            read = before.extended(keys, values)
            keys, values = read.read()
        # A single query may look at everything; of several behind a cache each at its past.
        mask, later = None, read.length > t > 1
        if later:
            mask = torch.ones(t, read.length, dtype=torch.bool, device=hidden.device)
            mask = mask.tril(read.length - t)
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=t > 1 and not later
        )
        attended = self.attention_out(attended.transpose(1, 2).reshape(n, t, width))
        hidden = hidden + functional.dropout(attended, self.dropout, self.training)
        inner = functional.gelu(self.expand(self.feed_forward_norm(hidden)))
        inner = functional.dropout(self.contract(inner), self.dropout, self.training)
        return hidden + inner, read
